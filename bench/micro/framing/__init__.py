"""The cost of reading and writing WebSocket frames: in this project, and in picows, a WebSocket library in C."""
