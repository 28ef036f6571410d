"""What tests share, in rooms: stores, servers, clients, readers, processes, conversations, faults, fuzz, grammar."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]      # the repository
