"""Everything between a mesh and its picture, as builders over ``F``, in rooms by role.

``raster`` (vertices to pixels), ``shading`` (pixels to colours), ``ibl`` (environment maps),
``camera`` (matrices), ``scene`` (meshes and scenes as data), ``fit`` (losses, regularizers,
metrics), ``io`` (files). Every room exports its public names. ``pipeline`` and ``renderer`` compose
them into ``DressiBasicRenderer``. Modules that had their place here before there were rooms are
still found under their old names, with a warning, for one release.
"""

import sys

from dressi.render.old_names import OldNames

sys.meta_path.append(OldNames())
