"""Workers: the processing of batches of subscriptions and events in the Python processes of Spark.

It imports `runtime`, `directory` and `sharding`; the modules of the verbs combine its parts to jobs.
"""
