"""HTTP requests and responses for commands (SPEC 1.7), without sockets: ``shell.http_connection`` does the I/O."""
