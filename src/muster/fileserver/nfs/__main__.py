from muster.fileserver.nfs.serving import main

main()
