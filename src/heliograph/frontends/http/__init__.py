"""HTTP/1.1 as one more protocol on the one port: requests, responses, what a handler may ask of its connection."""
