from muster.transfer.process import main

main()
