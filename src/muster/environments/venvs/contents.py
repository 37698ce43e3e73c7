"""The contents of a Python, found by a short program that runs in it. Standard library only.

The parts are texts, because that Python may be an old one, in another environment or in an image. They import nothing
but the modules that they name.
"""

# The versions of modules, from the metadata next to them; "" if there is none.
MODULES = r"""
import importlib.util, os, re

def modules(names):
    aliases = {"tensorflow": ("tensorflow", "tensorflow_cpu", "tensorflow_gpu", "tensorflow_intel", "tf_nightly")}
    found = {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            spec = None
        if spec is None:
            continue
        found[name] = ""
        for path in spec.submodule_search_locations or ():
            folder = os.path.dirname(path)
            for entry in os.listdir(folder) if os.path.isdir(folder) else ():
                match = re.match(r"(.+?)-([^-]+)(?:-py[^-]+)?\.(?:dist|egg)-info$", entry)
                if match and match.group(1).lower().replace("-", "_") in aliases.get(name, (name,)):
                    found[name] = match.group(2)
    return found
"""

# The MPI library that ranks would load, without starting MPI: mpi4py reports it, and Horovod's contains its name.
MPI_LIBRARY = r"""
import glob, importlib.util, os, re

def mpi_library():
    if importlib.util.find_spec("mpi4py"):
        import mpi4py
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        try:
            from mpi4py import MPI
            return {"by": "mpi4py", "text": MPI.Get_library_version()}
        except Exception as error:
            return {"by": "mpi4py", "error": str(error)}
    if importlib.util.find_spec("horovod"):
        folder = os.path.dirname(importlib.util.find_spec("horovod").origin)
        for path in glob.glob(os.path.join(folder, "*", "mpi_lib*.so")):
            with open(path, "rb") as file:
                named = re.search(rb"libmpi\.so\.(\d+)", file.read())
            if named:
                return {"by": "horovod", "text": "MPICH Version: 0" if named[1] == b"12" else "Open MPI v0"}
    return {}
"""
