"""The PySpark job that digests run logs: schema, reading and checking, transforms, session, job."""
