"""Files of subscriptions, for the library and the command line alike: formats, compression, places of errors."""
