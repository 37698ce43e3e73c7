from muster.storage.peers.serving import main

main()
