#!/bin/bash
# Stands in for the C++ compiler while pip builds Horovod 0.28.1, whose source predates current frameworks:
# their headers need C++17, and one source file, for GPUs under XLA alone, includes headers that TensorFlow no longer ships.
arguments=()
last=()
for argument in "$@"; do
    case $argument in
        -std=c++11 | -std=gnu++11 | -std=c++14 | -std=gnu++14) arguments+=(-std=gnu++17) ;;
        # An old version number makes the whole file empty; it must come after the one that the build sets.
        */xla_mpi_ops.cc) arguments+=("$argument"); last=(-UTENSORFLOW_VERSION -DTENSORFLOW_VERSION=2005000000) ;;
        *) arguments+=("$argument") ;;
    esac
done
exec g++ "${arguments[@]}" "${last[@]}"
