set -e
echo "epochs: $1"
python -c "import sys; print(sys.version)" > outputs/version.txt
