from muster.server.main import main

main()
