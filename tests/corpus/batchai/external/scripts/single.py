import os
import sys

print("one process", sys.argv[1:2], os.path.isdir(os.environ["AZ_BATCHAI_MOUNT_ROOT"]))
