import horovod.tensorflow as hvd

hvd.init()
print("rank", hvd.rank(), "of", hvd.size())
