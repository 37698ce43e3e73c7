import argparse
import os
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--script")
parser.add_argument("--data")
args, unparsed = parser.parse_known_args()
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
print("node", rank, "ip", socket.gethostbyname("localhost"), "data", os.listdir(args.data))
