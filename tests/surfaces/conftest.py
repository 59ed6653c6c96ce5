from tests.surfaces.support import world

__all__ = ["world"]
