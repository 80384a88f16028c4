"""AMQP 1.0, on the engine of Qpid Proton."""
