"""The PySpark job that digests the logs of runs. Modules: schema, reading and checking, transforms, session, job."""
