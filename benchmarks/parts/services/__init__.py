"""Services: how fast sessions on one server are stepped, by our clients, bare ones and OpenEnv's own."""
