"""Who somebody is, and how much of a stranger is borne: proofs, certificates, addresses.
Engines, which both ends of a connection use."""
