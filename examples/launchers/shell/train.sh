#!/bin/bash
# Fits y = a x + b by gradient descent, with nothing but awk.
set -euo pipefail

seq -1 0.1 1 | awk '{ print $1, 3 * $1 - 1 }' >points.txt
mkdir -p outputs
awk -v steps="${1:-50}" '
    { x[NR] = $1; y[NR] = $2 }
    END {
        for (step = 1; step <= steps; step++) {
            loss = slope = offset = 0
            for (i = 1; i <= NR; i++) {
                error = a * x[i] + b - y[i]
                loss += error ^ 2 / NR; slope += 2 * error * x[i] / NR; offset += 2 * error / NR
            }
            if (step == 1) first = loss
            a -= 0.3 * slope; b -= 0.3 * offset
        }
        printf "rank 0 of 1: loss %.4f -> %.4f, weights %.6f,%.6f\n", first, loss, a, b
    }' points.txt | tee outputs/model.txt
