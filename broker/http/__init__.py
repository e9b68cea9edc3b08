"""Commands over HTTP: the requests and responses of SPEC 1.7, without sockets. ``shell.http_socket`` does the I/O."""
