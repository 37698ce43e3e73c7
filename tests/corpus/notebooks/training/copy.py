import os
import shutil
import sys

for name in os.listdir(sys.argv[1]):
    shutil.copy(os.path.join(sys.argv[1], name), sys.argv[2])
