from muster.storage.staging.process import main

main()
