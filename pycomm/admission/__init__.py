"""Who may join a job, and until when: the secret, the handshake, the door that lets in, frames, deadlines."""
