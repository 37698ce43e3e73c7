"""Asks served models with the clients that others wrote: MLflow's own, and Triton's for the Open Inference Protocol.

Run by `test_scoring_clients.py` in an environment that has them: `python scoring_clients.py FOLDER`.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import mlflow.sklearn
import numpy
import pandas
import tritonclient.http
from mlflow.models import infer_signature
from mlflow.pyfunc.scoring_server.client import ScoringServerClient
from sklearn.linear_model import LinearRegression

ECHO = """
import json
def run(data):
    given = json.loads(data)["inputs"]
    return given if isinstance(given, dict) else [[2 * value for value in row] for row in given]
"""

DECORATED = """
import numpy
from inference_schema.parameter_types.numpy_parameter_type import NumpyParameterType
from inference_schema.parameter_types.standard_py_parameter_type import StandardPythonParameterType
from inference_schema.schema_decorators import input_schema, output_schema

@input_schema("data", NumpyParameterType(numpy.array([[1.0, 2.0]])))
@input_schema("scale", StandardPythonParameterType(1))
@output_schema(NumpyParameterType(numpy.array([1.0])))
def run(data, scale=2):
    return (data * scale).sum(axis=1)
"""


@contextlib.contextmanager
def served(model: str = "", script: str = "", name: str = "net"):
    """The port of a server of models."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = json.dumps({"script": script, "port": port, "name": name})
    command = [sys.executable, "-m", "muster.scoring.serve", settings]
    with subprocess.Popen(command, env={**os.environ, "MUSTER_INPUT_model": model}) as server:
        try:
            deadline = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60):
                    break
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the server did not come up")
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()
            server.wait(60)


def post(port: int, path: str, body: str, kind: str = "application/json"):
    """A code and what was answered."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body.encode(), {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def mlflow_forms(folder: str) -> None:
    """Every form of a request of MLflow, with its own client and without."""
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.0]})
    fitted = LinearRegression().fit(frame, [2.0, 5.0, 6.0])
    expected = fitted.predict(frame).tolist()
    mlflow.sklearn.save_model(fitted, f"{folder}/model", signature=infer_signature(frame, expected))
    mlflow.sklearn.save_model(LinearRegression().fit(frame.values, [2.0, 5.0, 6.0]), f"{folder}/plain")
    split, records = json.loads(frame.to_json(orient="split", index=False)), frame.to_dict(orient="records")
    with served(f"{folder}/model") as port:
        client = ScoringServerClient("127.0.0.1", port)
        client.wait_server_ready(timeout=60)
        found = client.invoke(frame).get_predictions()
        assert numpy.allclose(found.values.ravel(), expected), found
        for body in ({"dataframe_split": split}, {"dataframe_records": records}, {"instances": records},
                     {"inputs": frame.to_dict(orient="list")}):  # fmt: skip
            status, said = post(port, "/invocations", json.dumps(body))
            assert status == 200 and numpy.allclose(said["predictions"], expected), (body, said)
        status, said = post(port, "/invocations", frame.to_csv(index=False), "text/csv")
        assert status == 200 and numpy.allclose(said["predictions"], expected), said
        # Azure ML's own form, at its own address.
        status, said = post(port, "/score", json.dumps({"input_data": split}))
        assert status == 200 and numpy.allclose(said, expected), said
        for wrong in ("{}", "3", '{"dataframe_split": 3}', '{"dataframe_records": [{"c": 1}]}', "no json",
                      '{"inputs": [1], "instances": [1]}'):  # fmt: skip
            assert post(port, "/invocations", wrong)[0] == 400, wrong
        assert post(port, "/invocations", 'a,b\n1,"2', "text/csv")[0] == 400
    with served(f"{folder}/plain") as port:
        for body in ({"inputs": frame.values.tolist()}, {"instances": frame.values.tolist()}):
            status, said = post(port, "/invocations", json.dumps(body))
            assert status == 200 and numpy.allclose(said["predictions"], expected), (body, said)


def inference_protocol(folder: str) -> None:
    """Triton's client, with tensors in the JSON and as bytes behind it."""
    script = f"{folder}/echo.py"
    pathlib.Path(script).write_text(ECHO)
    values = numpy.array([[1, 2, 3], [4, 5, 6]], dtype=numpy.float32)
    with served(script=script) as port:
        client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}")
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("net")
        assert client.get_model_metadata("net")["name"] == "net" and "muster" in client.get_server_metadata()["name"]
        for binary in (False, True):
            given = tritonclient.http.InferInput("x", [2, 3], "FP32")
            given.set_data_from_numpy(values, binary_data=binary)
            found = client.infer("net", [given], request_id="7")
            assert found.get_response()["id"] == "7"
            assert numpy.array_equal(found.as_numpy("output_0"), 2 * values), binary
        texts = tritonclient.http.InferInput("words", [2], "BYTES")
        texts.set_data_from_numpy(numpy.array(["ein", "zwei"], dtype=object), binary_data=True)
        numbers = tritonclient.http.InferInput("numbers", [3], "INT64")
        numbers.set_data_from_numpy(numpy.arange(3), binary_data=True)
        found = client.infer("net", [texts, numbers])
        assert found.as_numpy("numbers").tolist() == [0, 1, 2]
        assert found.get_response()["outputs"][0]["data"] == ["ein", "zwei"]
        try:
            client.infer("other", [given])
        except tritonclient.http.InferenceServerException as error:
            assert "the model is called net" in str(error), error
        else:
            sys.exit("an unknown model was answered")
        client.close()


def schema_decorators(folder: str) -> None:
    """The decorators of Azure ML's public examples."""
    script = f"{folder}/decorated.py"
    pathlib.Path(script).write_text(DECORATED)
    with served(script=script) as port:
        assert post(port, "/score", '{"data": [[1, 2], [3, 4]]}') == (200, [6.0, 14.0])
        assert post(port, "/score", '{"data": [[1, 2]], "scale": 3}') == (200, [9.0])
        assert post(port, "/score", '{"scale": 3}')[0] == 400
        assert post(port, "/score", '{"data": [[1, 2]]}', "text/plain")[0] == 415
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/swagger.json?version=3", timeout=60) as answer:
            schemas = json.load(answer)["components"]["schemas"]
        assert schemas["ServiceInput"]["example"] == {"data": [[1.0, 2.0]], "scale": 1}, schemas
        assert schemas["ServiceOutput"]["type"] == "array", schemas


if __name__ == "__main__":
    schema_decorators(sys.argv[1])
    mlflow_forms(sys.argv[1])
    inference_protocol(sys.argv[1])
    print("all clients were answered")
