"""Workers answer what happens to a batch of subscriptions or events in a Python process of Spark.

Below them are `runtime`, `directory` and `sharding`; the modules of the verbs assemble jobs out of what is here.
"""
