"""The only compiled code: arrays in, arrays out. Every kernel is made by the one decorator, `kernel`."""
