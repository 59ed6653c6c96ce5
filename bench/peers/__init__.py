"""One program for each peer, for the bare floor and for holdfast: the same turns, the same model, the same figures.

Each runs in an environment of its own (`python -m bench.peers.run_langgraph loop --variant graph`), so nothing here may
import more than the standard library, its own peer, and `bench.peers.frame`. A program prints one JSON line for each
figure, and asserts that the tool ran as often as it was called and that the last answer came back.
"""
