from azureml.core import Run

run = Run.get_context()
for alpha in (0.1, 0.2):
    with run.child_run(name="alpha {}".format(alpha)) as child:
        child.log("alpha", alpha)
run.log("children", 2)
