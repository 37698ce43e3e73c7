"""Single Python processes that fail, without torch."""

from recorder import Failure

FAILURES = [
    Failure(
        name="yaml-learning-rate-string",
        way="YAML reads 1e-4 as a string",
        code="exception",
        command="python fit.py --config conf/base.yaml",
        files={
            "fit.py": """\
import argparse, yaml
p = argparse.ArgumentParser(); p.add_argument('--config')
cfg = yaml.safe_load(open(p.parse_args().config))
print('config', cfg)
w = 1.0
for step in range(3):
    grad = 0.5
    w -= cfg['lr'] * grad
""",
            "conf/base.yaml": """\
lr: 1e-4
epochs: 3
""",
        },
        wanted="can't multiply sequence by non-int of type 'float'",
        helpful=(
            r"1e-4|1\.0e-4|\blr\b",
            r"fit\.py",
            r"base\.yaml",
            r"float\(",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="json-trailing-comma",
        way="a comma too many in a JSON config",
        code="exception",
        command="python finetune.py",
        files={
            "finetune.py": """\
import json
def load(path):
    with open(path) as f:
        return json.load(f)
cfg = load('ds_config.json')
""",
            "ds_config.json": """\
{
  "train_batch_size": 32,
  "zero_optimization": {"stage": 2},
}
""",
        },
        wanted=("JSONDecodeError: Expecting property name enclosed in double quotes: line 4 column 1"),
        helpful=(
            r"ds_config\.json",
            r"finetune\.py",
            "comma|line 4",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="vocab-index-out-of-bounds",
        way="a token id beyond the embedding table",
        code="exception",
        command="python -u lm.py",
        files={
            "lm.py": """\
import numpy as np
table = np.zeros((1000, 8))
print('loading tokens')
def embed(ids):
    return table[ids]
batch = np.array([1, 5, 999, 1000])
print('step 0')
embed(batch)
"""
        },
        wanted="IndexError: index 1000 is out of bounds for axis 0 with size 1000",
        helpful=(
            r"lm\.py",
            "vocab|embed|table",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="checkpoint-truncated-pickle",
        way="a checkpoint cut off while it was written",
        code="exception",
        also_codes=("data_unavailable",),
        command="python resume.py",
        files={
            "resume.py": """\
import pickle
pickle.dump({'w': list(range(5000))}, open('last.pkl', 'wb'))
data = open('last.pkl', 'rb').read()
open('last.pkl', 'wb').write(data[:len(data) // 2])
print('resuming from last.pkl')
state = pickle.load(open('last.pkl', 'rb'))
"""
        },
        wanted="UnpicklingError: pickle data was truncated",
        helpful=(
            r"last\.pkl",
            r"resume\.py",
            "checkpoint",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            "pip install",
        ),
    ),
    Failure(
        name="npz-is-not-a-zip",
        way="a Git LFS pointer instead of the data",
        code="exception",
        also_codes=("data_unavailable",),
        command="python eval.py",
        files={
            "eval.py": """\
import numpy as np
x = np.load('features.npz')['x']
""",
            "features.npz": """\
version https://git-lfs.github.com/spec/v1
oid sha256:4d7a2146
size 183742
""",
        },
        wanted=(
            "pickled data when allow_pickle=False",
            "This file contains pickled",
        ),
        helpful=(
            r"features\.npz",
            r"eval\.py",
            "lfs",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="diverged-multiline-message",
        way="a NaN guard with a message of many lines",
        code="exception",
        command="python -u pretrain.py",
        files={
            "pretrain.py": """\
import math
class TrainingDiverged(RuntimeError):
    pass
def guard(step, loss, norm):
    if math.isnan(loss):
        raise TrainingDiverged(
            f'loss is nan at step {step}\\n\\n  gradient norm: {norm}\\n  learning rate: 0.3\\n'
            '  last batches: shard-00012, shard-00013\\n\\nNote: lower the learning rate, or clip gradients.\\n'
            'See: https://wiki.example.org/divergence')
for step, loss in enumerate([3.1, 2.9, 14.0, float('nan')]):
    print(f'step {step} loss {loss}')
    guard(step, loss, float('inf'))
"""
        },
        wanted="TrainingDiverged: loss is nan at step 3",
        helpful=(
            "learning rate|clip",
            r"pretrain\.py",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="assert-batch-divisible",
        way="an assertion with a message",
        code="exception",
        command="python main.py --global-batch 100",
        files={
            "main.py": """\
import sys
batch = int(sys.argv[2])
micro = 3
assert batch % micro == 0, f'global batch {batch} is not a multiple of micro batch {micro}'
"""
        },
        wanted="AssertionError: global batch 100 is not a multiple of micro batch 3",
        helpful=(
            "global-batch|global batch|micro",
            r"main\.py",
        ),
        misleading=(r"memory|network|try again|submit again|\bpip\b",),
    ),
    Failure(
        name="chain-from-keyerror",
        way="raise … from …: the cause is the inner one",
        code="exception",
        command="python pipeline.py",
        files={
            "pipeline.py": """\
class PipelineError(Exception):
    pass
def decode(sample):
    return sample['input_ids']
def build(samples):
    try:
        return [decode(s) for s in samples]
    except KeyError as error:
        raise PipelineError('could not build the data pipeline') from error
try:
    build([{'input_ids': 1}, {'tokens': 2}])
except PipelineError as error:
    raise SystemError('training cannot start') from error
"""
        },
        wanted="KeyError: 'input_ids'",
        helpful=(
            "input_ids",
            r"pipeline\.py",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="handler-fails-too",
        way="the error handler has a bug of its own",
        code="exception",
        command="python run_exp.py",
        files={
            "run_exp.py": """\
state = {'model': 1}
try:
    opt = state['optimizer_state']
except KeyError:
    logger.warning('no optimizer state')
    opt = None
"""
        },
        wanted=(
            "NameError: name 'logger' is not defined",
            "KeyError: 'optimizer_state'",
        ),
        helpful=(
            "logger",
            r"run_exp\.py",
            "optimizer_state",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="taskgroup-one-shard",
        way="an exception group of asyncio",
        code="exception",
        command="python fetch.py",
        files={
            "fetch.py": """\
import asyncio
async def shard(n):
    await asyncio.sleep(0.01 * n)
    if n == 3:
        raise ValueError('shard 3 has 17 columns, expected 16')
    await asyncio.sleep(1)
async def main():
    async with asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(shard(n))
asyncio.run(main())
"""
        },
        wanted="ValueError: shard 3 has 17 columns, expected 16",
        helpful=(
            "shard 3|column",
            r"fetch\.py",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="group-of-three-kinds",
        way="an exception group raised by hand",
        code="exception",
        also_codes=("data_unavailable",),
        command="python validate.py",
        files={
            "validate.py": """\
def check(path):
    if path.endswith('.txt'):
        raise TypeError(f'{path}: not a parquet file')
    raise FileNotFoundError(2, 'No such file or directory', path)
errors = []
for path in ['a.parquet', 'b.txt', 'c.parquet']:
    try:
        check(path)
    except Exception as error:
        errors.append(error)
if errors:
    raise ExceptionGroup('the data set is not usable', errors)
"""
        },
        wanted=(
            "No such file or directory: 'a.parquet'",
            "TypeError: b.txt: not a parquet file",
            "the data set is not usable",
        ),
        helpful=(
            r"validate\.py",
            r"a\.parquet|b\.txt|c\.parquet",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="loguru-then-exit-3",
        way="the traceback is logged, then sys.exit(3)",
        code="exception",
        also_codes=("exit_code",),
        venv="scratch",
        command="python service.py",
        files={
            "service.py": """\
import sys
from loguru import logger
@logger.catch(onerror=lambda _: sys.exit(3))
def main():
    rates = {'en': 0.5, 'de': 0.5}
    logger.info('mixing {}', rates)
    total = sum(rates[k] for k in ('en', 'de', 'fr'))
    print(total)
main()
"""
        },
        wanted="KeyError: 'fr'",
        helpful=(
            r"service\.py",
            r"'?fr'?\b.*rates|rates|mix",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="structlog-json-exception",
        way="the traceback is a field of a JSON line",
        code="exception",
        also_codes=("exit_code",),
        venv="scratch",
        command="python worker.py",
        files={
            "worker.py": """\
import sys, structlog
structlog.configure(processors=[structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt='iso'), structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer()])
log = structlog.get_logger()
log.info('start', epochs=3)
try:
    int('12,5')
except ValueError:
    log.exception('epoch failed', epoch=1)
    log.info('shutting down', reason='error')
    sys.exit(1)
"""
        },
        wanted="ValueError: invalid literal for int() with base 10: '12,5'",
        helpful=(
            r"worker\.py",
            r"12,5|comma|int\(",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="tqdm-glued-traceback",
        way="the traceback begins at the end of a progress bar",
        code="exception",
        venv="scratch",
        command="python bars.py",
        files={
            "bars.py": """\
import time
from tqdm import tqdm
for i in tqdm(range(400), desc='Epoch 1', mininterval=0):
    time.sleep(0.002)
    if i == 321:
        loss = {'mlm': 1.0}['nsp']
"""
        },
        wanted="KeyError: 'nsp'",
        helpful=(
            r"bars\.py",
            "nsp",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="retries-logged-then-exit-message",
        way="three tracebacks that were handled, then an exit with a message",
        code="exit_code",
        command="python get_and_train.py",
        files={
            "get_and_train.py": """\
import logging, sys, urllib.request
logging.basicConfig(level=logging.INFO)
for attempt in range(3):
    try:
        urllib.request.urlopen('http://127.0.0.1:9/mirror', timeout=2)
    except OSError:
        logging.exception('mirror %d failed, trying the next one', attempt)
logging.info('using the copy in the image')
vocab = 32000
if vocab % 128:
    pass
sys.exit('--vocab-size 32000 does not fit tokenizer.model, which has 32100 pieces')
"""
        },
        wanted="--vocab-size 32000 does not fit tokenizer.model, which has 32100 pieces",
        helpful=(r"vocab-size|tokenizer\.model|32100",),
        misleading=("refused|network|mirror|urlopen|firewall|memory",),
    ),
    Failure(
        name="ignored-del-then-segv",
        way="an exception in __del__, then SIGSEGV",
        code="signal",
        command="python leak.py",
        files={
            "leak.py": """\
import ctypes
class Pool:
    def __del__(self):
        self.queue.close()
Pool()
print('epoch 1 done', flush=True)
print('epoch 2 done', flush=True)
ctypes.string_at(0)
"""
        },
        wanted=(
            "SIGSEGV",
            "Segmentation fault",
            "signal 11",
        ),
        helpful=(
            "faulthandler",
            r"ctypes|leak\.py|native",
        ),
        misleading=("queue|AttributeError|__del__|memory limit|smaller batch",),
    ),
    Failure(
        name="atexit-fails-after-exception",
        way="an exit handler fails after the exception",
        code="exception",
        command="python tracked.py",
        files={
            "tracked.py": """\
import atexit
@atexit.register
def flush():
    print('tracker: uploading 3 files')
    print('tracker: error: queue is closed')
    raise RuntimeError('tracker was not finished')
def schedule(step, warmup):
    return step / warmup
print(schedule(1, 10))
print(schedule(2, 0))
"""
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(
            r"tracked\.py",
            "warmup",
        ),
        misleading=("tracker|queue|atexit|memory|network",),
    ),
    Failure(
        name="os-exit-after-message",
        way="os._exit with a message",
        code="exit_code",
        command="python licensed.py",
        files={
            "licensed.py": """\
import os, sys
print('loading solver')
print('solver version 11.2')
sys.stderr.write('FATAL: no licence for 16 threads (feature OPT16), 4 are available\\n')
sys.stderr.flush(); sys.stdout.flush()
os._exit(42)
"""
        },
        wanted="FATAL: no licence for 16 threads (feature OPT16), 4 are available",
        helpful=("licen[cs]e|threads|OPT16",),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            "segfault|native",
        ),
    ),
    Failure(
        name="thread-fails-main-gives-up",
        way="an exception in a thread, then exit 1",
        code="exception",
        also_codes=("exit_code",),
        command="python prefetch.py",
        files={
            "prefetch.py": """\
import queue, sys, threading
q = queue.Queue()
def fill():
    for i in range(10):
        q.put(100 // (5 - i))
threading.Thread(target=fill, name='prefetch', daemon=True).start()
for step in range(10):
    try:
        print('batch', q.get(timeout=0.5))
    except queue.Empty:
        print('ERROR no batch for 0.5 s, giving up', file=sys.stderr)
        sys.exit(1)
"""
        },
        wanted="ZeroDivisionError: integer division or modulo by zero",
        helpful=(
            "prefetch",
            "thread",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"limits\.timeout",
        ),
    ),
    Failure(
        name="thread-fails-main-waits",
        way="an exception in a thread; the main thread waits until the limit",
        code="exception",
        also_codes=("timeout",),
        limit_s=3.0,
        command="python stream.py",
        files={
            "stream.py": """\
import queue, threading
q = queue.Queue()
def read():
    for line in open('records.tsv'):
        q.put(float(line.split('\\t')[1]))
threading.Thread(target=read, name='reader').start()
total = 0.0
while True:
    total += q.get()
    print('total', total, flush=True)
""",
            "records.tsv": """\
a	1.0
b	2.0
c 3.0
""",
        },
        wanted="IndexError: list index out of range",
        helpful=(
            r"stream\.py",
            r"records\.tsv",
            "reader|thread",
        ),
        misleading=(r"raise .{0,20}limits\.timeout|raise the (time )?limit|longer time",),
    ),
    Failure(
        name="segv-plain",
        way="SIGSEGV without a word",
        code="signal",
        command="python infer.py",
        files={
            "infer.py": """\
import ctypes
print('warming up', flush=True)
ctypes.memset(0x10, 0, 64)
"""
        },
        wanted=(
            "SIGSEGV",
            "Segmentation fault",
            "signal 11",
        ),
        helpful=(
            "faulthandler",
            r"native|ctypes|infer\.py",
        ),
        misleading=("memory limit|smaller batch|network",),
    ),
    Failure(
        name="segv-with-faulthandler",
        way="SIGSEGV with Python's fault handler on",
        code="signal",
        command="python -X faulthandler launch.py",
        files={
            "launch.py": """\
import kernels
kernels.fused_softmax(4)
""",
            "kernels.py": """\
import ctypes
def fused_softmax(n):
    return ctypes.c_int.from_address(n).value
""",
        },
        wanted=(
            "Segmentation fault",
            "SIGSEGV",
        ),
        helpful=(
            r"kernels\.py",
            "fused_softmax",
        ),
        misleading=("smaller batch|network|PYTHONFAULTHANDLER=1",),
    ),
    Failure(
        name="sigbus-truncated-mmap",
        way="a memory-mapped file was cut short by another program",
        code="signal",
        command="python mapped.py",
        files={
            "mapped.py": """\
import mmap, os
with open('tokens.bin', 'wb') as f:
    f.write(b'x')
    f.truncate(1 << 20)
f = open('tokens.bin', 'r+b')
m = mmap.mmap(f.fileno(), 0)
print('mapped', len(m), flush=True)
os.truncate('tokens.bin', 0)
print(m[500000])
"""
        },
        wanted=(
            "SIGBUS",
            "Bus error",
            "signal 7",
        ),
        helpful=(
            r"mmap|mapped|tokens\.bin|file",
            "faulthandler",
        ),
        misleading=("network|pip install",),
    ),
    Failure(
        name="recursion-depth",
        way="a recursion without end",
        code="exception",
        command="python tree.py",
        files={
            "tree.py": """\
def depth(node):
    return 1 + max(depth(c) for c in node['children'])
root = {'children': []}
root['children'].append(root)
print(depth(root))
"""
        },
        wanted="RecursionError: maximum recursion depth exceeded",
        helpful=(
            r"tree\.py",
            "recurs|cycle",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="ulimit-v-array",
        way="an array larger than the limit of memory",
        code="host_oom",
        also_codes=("exception",),
        command="ulimit -v 2000000; exec python big.py",
        files={
            "big.py": """\
import numpy as np
print('allocating the replay buffer', flush=True)
buf = np.ones((1_000_000, 84, 84), dtype=np.float32)
"""
        },
        wanted="Unable to allocate 26.3 GiB for an array with shape (1000000, 84, 84)",
        helpful=(
            r"big\.py",
            "ulimit",
            "float32|dtype|shape|smaller|26",
        ),
        misleading=(r"network|\bport\b|data-loader workers|fewer ranks",),
    ),
    Failure(
        name="fd-limit",
        way="more open files than allowed",
        code="exception",
        command="ulimit -n 64; exec python shards.py",
        files={
            "shards.py": """\
import os
os.makedirs('shards', exist_ok=True)
handles = []
for i in range(200):
    handles.append(open(f'shards/{i:05}.idx', 'w'))
"""
        },
        wanted="OSError: [Errno 24] Too many open files",
        helpful=(
            "ulimit|descriptor|open files|close",
            r"shards\.py",
        ),
        misleading=("disk|out of memory|network",),
    ),
    Failure(
        name="dev-full-log",
        way="no space for the metrics file",
        code="disk_full",
        command="ln -s /dev/full metrics.csv; exec python metrics.py",
        files={
            "metrics.py": """\
f = open('metrics.csv', 'w', buffering=1)
for step in range(100):
    f.write(f'{step},{1 / (step + 1)}\\n')
"""
        },
        wanted="OSError: [Errno 28] No space left on device",
        helpful=(r"disk|space|metrics\.csv|muster rm|quota",),
        misleading=(r"out of memory|network|\bpip\b",),
    ),
    Failure(
        name="file-size-limit",
        way="a checkpoint larger than ulimit -f",
        code="exception",
        also_codes=("disk_full",),
        command="ulimit -f 100; exec python save.py",
        files={
            "save.py": """\
import os
os.makedirs('ckpt')
with open('ckpt/step100.bin', 'wb') as f:
    for _ in range(50):
        f.write(os.urandom(10_000))
"""
        },
        wanted="OSError: [Errno 27] File too large",
        helpful=(
            "ulimit|file size|limit",
            r"step100|save\.py",
        ),
        misleading=("out of memory|network|muster rm",),
    ),
    Failure(
        name="cpu-time-limit",
        way="ulimit -t",
        code="signal",
        command="ulimit -St 1; exec python burn.py",
        files={
            "burn.py": """\
print('crunching', flush=True)
n = 0
while True:
    n += 1
"""
        },
        wanted=(
            "SIGXCPU",
            "CPU time limit exceeded",
            "signal 24",
        ),
        helpful=("ulimit|CPU time",),
        misleading=(r"out of memory|network|limits\.timeout|faulthandler",),
    ),
    Failure(
        name="german-message",
        way="an exception with a German message",
        code="exception",
        command="python lauf.py",
        files={
            "lauf.py": """\
class DatenFehler(Exception):
    pass
print('Lade Datensatz …')
def pruefe(zeilen):
    if not zeilen:
        raise DatenFehler('Datei »korpus.txt« enthält keine Trainingsdaten')
pruefe([])
"""
        },
        wanted="DatenFehler: Datei »korpus.txt« enthält keine Trainingsdaten",
        helpful=(
            r"korpus\.txt",
            r"lauf\.py",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="chinese-message",
        way="a Chinese message and exit",
        code="exit_code",
        command="python xunlian.py",
        files={
            "xunlian.py": """\
import sys
print('正在加载模型……')
print('错误:找不到词表文件 vocab.txt,请检查配置', file=sys.stderr)
sys.exit(2)
"""
        },
        wanted="错误:找不到词表文件 vocab.txt,请检查配置",
        helpful=(r"vocab\.txt",),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            "usage|argument",
        ),
    ),
    Failure(
        name="spanish-exit-string",
        way="sys.exit with a Spanish sentence",
        code="exit_code",
        command="python entrena.py",
        files={
            "entrena.py": """\
import sys
print('Época 1: pérdida 0,93')
print('Época 2: pérdida 0,87')
sys.exit('no se puede abrir el índice «train.idx»: versión 2, se esperaba 3')
"""
        },
        wanted="no se puede abrir el índice «train.idx»: versión 2, se esperaba 3",
        helpful=(r"train\.idx",),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="csv-latin1",
        way="a file in Latin-1 read as UTF-8",
        code="exception",
        command="python prep.py",
        files={
            "prep.py": """\
open('names.csv', 'wb').write('id,name\\n1,Jos\\xe9\\n'.encode('latin-1'))
for row in open('names.csv', encoding='utf-8'):
    print(row)
"""
        },
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9",
        helpful=(
            "encoding|latin",
            r"prep\.py",
            r"names\.csv",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="ascii-stdout",
        way="an ellipsis printed to an ASCII terminal",
        code="exception",
        variables={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        command="python greet.py",
        files={
            "greet.py": """\
print('starting')
print('übrig: 3 Epochen')
"""
        },
        wanted="UnicodeEncodeError: 'ascii' codec can't encode character",
        helpful=(
            "PYTHONIOENCODING|PYTHONUTF8|encoding|LANG",
            r"greet\.py",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="shadowed-queue",
        way="a file of the project has the name of a standard module",
        code="exception",
        also_codes=("environment",),
        command="python go.py",
        files={
            "go.py": """\
import concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(2)
""",
            "queue.py": "ITEMS = []\n",
        },
        wanted=(
            "module 'queue' has no attribute 'SimpleQueue'",
            "has no attribute 'SimpleQueue'",
        ),
        helpful=(
            r"queue\.py",
            "rename|shadow",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"pip install|pip: \[",
        ),
    ),
    Failure(
        name="module-similar-file",
        way="the module's name is misspelt; a similar file lies beside it",
        code="environment",
        command="python train_vit.py",
        files={
            "train_vit.py": "from data_util import collate\n",
            "data_utils.py": """\
def collate(x):
    return x
""",
        },
        wanted="ModuleNotFoundError: No module named 'data_util'",
        helpful=("data_utils",),
        misleading=(r"pip: \[data_util|pip install data_util|network",),
    ),
    Failure(
        name="module-in-subfolder",
        way="the script lies in a folder and imports from the folder above",
        code="environment",
        command="python scripts/run.py",
        files={
            "scripts/run.py": "from models.unet import UNet\n",
            "models/__init__.py": "",
            "models/unet.py": "class UNet: ...\n",
        },
        wanted="No module named 'models'",
        helpful=(
            "PYTHONPATH|python -m scripts|models/",
            r"working dir|sys\.path",
        ),
        misleading=(r"pip: \[models|pip install models|network",),
    ),
    Failure(
        name="module-cv2",
        way="cv2 is opencv-python",
        code="environment",
        command="python augment.py",
        files={
            "augment.py": """\
import os
import cv2
"""
        },
        wanted="ModuleNotFoundError: No module named 'cv2'",
        helpful=("opencv-python",),
        misleading=(
            r"pip install cv2|pip: \[cv2",
            "network",
        ),
    ),
    Failure(
        name="module-flash-attn-inside-try",
        way="the import error is raised again with advice",
        code="environment",
        also_codes=("exception",),
        command="python gpt.py",
        files={
            "gpt.py": """\
try:
    import flash_attn
except ImportError as error:
    raise ImportError('--attention flash needs the package flash-attn') from error
"""
        },
        wanted=(
            "No module named 'flash_attn'",
            "--attention flash needs the package flash-attn",
        ),
        helpful=("flash[-_]attn",),
        misleading=("network|memory",),
    ),
    Failure(
        name="relative-import",
        way="a relative import in a script",
        code="environment",
        also_codes=("exception",),
        command="python trainer/entry.py",
        files={
            "trainer/entry.py": "from .model import Net\n",
            "trainer/__init__.py": "",
            "trainer/model.py": "class Net: ...\n",
        },
        wanted="ImportError: attempted relative import with no known parent package",
        helpful=(
            "python -m trainer|-m ",
            r"entry\.py|\.model",
        ),
        misleading=(r"pip install|pip: \[|network",),
    ),
    Failure(
        name="circular-import",
        way="two modules import each other",
        code="exception",
        also_codes=("environment",),
        command="python start.py",
        files={
            "start.py": "import losses\n",
            "losses.py": """\
from metrics import accuracy
def ce(): ...
""",
            "metrics.py": """\
from losses import ce
def accuracy(): ...
""",
        },
        wanted="cannot import name 'ce' from partially initialized module 'losses'",
        helpful=(
            "losses|metrics",
            "circular",
        ),
        misleading=(r"pip install|pip: \[|network",),
    ),
    Failure(
        name="numpy-2-removed-name",
        way="code for NumPy 1",
        code="exception",
        also_codes=("environment",),
        command="python old.py",
        files={
            "old.py": """\
import numpy as np
x = np.zeros(3, dtype=np.float_)
"""
        },
        wanted="`np.float_` was removed in the NumPy 2.0 release",
        helpful=(
            r"np\.float64|float64|numpy",
            r"old\.py",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="tab-error",
        way="tabs and spaces mixed in an imported file",
        code="exception",
        command="python app.py",
        files={
            "app.py": "import layers\n",
            "layers.py": """\
def f(x):
    if x:
	return 1
    return 2
""",
        },
        wanted="TabError: inconsistent use of tabs and spaces in indentation",
        helpful=(r"layers\.py",),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="notebook-magic",
        way="a notebook saved as a script",
        code="exception",
        command="python exported.py",
        files={
            "exported.py": """\
# In[1]:
import math
%matplotlib inline
print(math.pi)
"""
        },
        wanted="SyntaxError: invalid syntax",
        helpful=(
            r"exported\.py",
            "%matplotlib|notebook|line 3",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="python2-print",
        way="a script for Python 2",
        code="exception",
        command="python legacy.py",
        files={
            "legacy.py": """\
import os
print 'epoch', 1
"""
        },
        wanted="SyntaxError: Missing parentheses in call to 'print'",
        helpful=(
            r"legacy\.py",
            "Python 2|parenthes",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="environment-variable-missing",
        way="a variable that nobody set",
        code="exception",
        also_codes=("bad_input",),
        command="python paths.py",
        files={
            "paths.py": """\
import os
ROOT = os.environ['IMAGENET_ROOT']
print(ROOT)
"""
        },
        wanted="KeyError: 'IMAGENET_ROOT'",
        helpful=("IMAGENET_ROOT",),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            "torchrun|process count",
        ),
    ),
    Failure(
        name="argparse-invalid-choice",
        way="argparse rejects a value",
        code="exit_code",
        also_codes=("bad_input",),
        command="python cli.py --precision bf61",
        files={
            "cli.py": """\
import argparse
p = argparse.ArgumentParser()
p.add_argument('--precision', choices=['fp32', 'bf16'])
p.parse_args()
"""
        },
        wanted="argument --precision: invalid choice: 'bf61'",
        helpful=("--precision|bf16|bf61",),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="argparse-unrecognized",
        way="argparse does not know an option",
        code="exit_code",
        also_codes=("bad_input",),
        command="python tune.py --epochs 3 --learning_rate 0.1",
        files={
            "tune.py": """\
import argparse
p = argparse.ArgumentParser(description='tune')
p.add_argument('--epochs', type=int)
p.add_argument('--learning-rate', type=float)
args = p.parse_args()
"""
        },
        wanted="error: unrecognized arguments: --learning_rate 0.1",
        helpful=("learning[-_]rate",),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="click-no-such-option",
        way="click rejects an option",
        code="exit_code",
        also_codes=("bad_input",),
        command="python clicky.py --ouput-dir out",
        files={
            "clicky.py": """\
import click
@click.command()
@click.option('--output-dir')
def main(output_dir):
    pass
main()
"""
        },
        wanted="No such option '--ouput-dir'",
        helpful=("--output-dir|--ouput-dir",),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="typer-rich-traceback",
        way="typer prints a traceback in a box",
        code="exception",
        venv="scratch",
        command="python boxed.py --layers 0",
        files={
            "boxed.py": """\
import typer
app = typer.Typer()
@app.command()
def main(layers: int = 2):
    width = 1024
    print('width', width)
    print(width // layers)
app()
"""
        },
        wanted="ZeroDivisionError: integer division or modulo by zero",
        helpful=(
            r"boxed\.py",
            "layers",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="rich-traceback-installed",
        way="rich.traceback.install()",
        code="exception",
        venv="scratch",
        command="python pretty.py",
        files={
            "pretty.py": """\
from rich.traceback import install
install(show_locals=True)
def pad(rows, to):
    return [row + [0] * (to - len(row)) for row in rows]
def main():
    rows = [[1, 2], None, [3]]
    pad(rows, 4)
main()
"""
        },
        wanted="TypeError: object of type 'NoneType' has no len()",
        helpful=(
            r"pretty\.py",
            "None|rows|pad",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="ipython-traceback",
        way="run by IPython",
        code="exception",
        venv="scratch",
        command="ipython --no-banner analysis.py",
        files={
            "analysis.py": """\
scores = {'a': 1}
def best(scores):
    return scores.most_common(1)
best(scores)
"""
        },
        wanted="AttributeError: 'dict' object has no attribute 'most_common'",
        helpful=(
            r"analysis\.py",
            "most_common|Counter",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="hydra-unknown-key",
        way="hydra rejects an override",
        code="exit_code",
        also_codes=(
            "exception",
            "bad_input",
        ),
        venv="scratch",
        command="python hyd.py optim.learnrate=0.1",
        files={
            "hyd.py": """\
import hydra
@hydra.main(version_base=None, config_path='conf', config_name='config')
def main(cfg):
    print(cfg)
main()
""",
            "conf/config.yaml": """\
optim:
  lr: 0.01
""",
        },
        wanted=(
            "Could not override 'optim.learnrate'",
            "Key 'learnrate' is not in struct",
        ),
        helpful=(r"learnrate|optim|\+optim|conf/config\.yaml",),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="hydra-missing-value",
        way="a mandatory value of a hydra config",
        code="exception",
        also_codes=(
            "exit_code",
            "bad_input",
        ),
        venv="scratch",
        command="python hyd2.py",
        files={
            "hyd2.py": """\
import hydra
@hydra.main(version_base=None, config_path='conf', config_name='config')
def main(cfg):
    print('reading', cfg.data.path)
main()
""",
            "conf/config.yaml": """\
data:
  path: ???
""",
        },
        wanted="Missing mandatory value: data.path",
        helpful=(
            r"data\.path",
            r"config\.yaml",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="hydra-error-in-task",
        way="hydra shortens the traceback",
        code="exception",
        also_codes=("exit_code",),
        venv="scratch",
        command="python hyd3.py",
        files={
            "hyd3.py": """\
import hydra
def build(name):
    return {'mlp': 1}[name]
@hydra.main(version_base=None, config_path='conf', config_name='config')
def main(cfg):
    build(cfg.model)
main()
""",
            "conf/config.yaml": "model: transformer\n",
        },
        wanted="KeyError: 'transformer'",
        helpful=(
            r"hyd3\.py",
            "transformer|model",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            "HYDRA_FULL_ERROR=1$",
        ),
    ),
    Failure(
        name="pydantic-validation",
        way="a validation error of several lines",
        code="exception",
        also_codes=("bad_input",),
        command="python settings.py",
        files={
            "settings.py": """\
from pydantic import BaseModel
class Train(BaseModel):
    epochs: int
    lr: float
    name: str
Train.model_validate({'epochs': 'three', 'name': 'a'})
"""
        },
        wanted=(
            "2 validation errors for Train",
            "unable to parse string as an integer",
        ),
        helpful=(
            r"epochs|\blr\b",
            r"settings\.py",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"pydantic\.dev",
        ),
    ),
    Failure(
        name="absl-unknown-flag",
        way="absl rejects a flag",
        code="exit_code",
        also_codes=("bad_input",),
        venv="scratch",
        command="python absl_main.py --batchsize=3",
        files={
            "absl_main.py": """\
from absl import app, flags
flags.DEFINE_integer('batch_size', 1, 'batch size')
def main(argv):
    print(flags.FLAGS.batch_size)
app.run(main)
"""
        },
        wanted="Unknown command line flag 'batchsize'",
        helpful=("batch_?size",),
        misleading=("smaller batch|memory|network",),
    ),
    Failure(
        name="interrupted-from-within",
        way="SIGINT that a helper sent",
        code="signal",
        also_codes=("exception",),
        command="python sigint.py",
        files={
            "sigint.py": """\
import os, signal, threading, time
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
for step in range(1000):
    time.sleep(0.05)
"""
        },
        wanted=(
            "KeyboardInterrupt",
            "SIGINT",
        ),
        helpful=(r"SIGINT|interrupt|sigint\.py",),
        misleading=(r"memory|network|\bpip\b",),
    ),
    Failure(
        name="watchdog-sigterm",
        way="the script's watchdog sends SIGTERM to itself",
        code="signal",
        command="python guarded.py",
        files={
            "guarded.py": """\
import os, signal, sys, threading, time
last = time.monotonic()
def watch():
    while True:
        time.sleep(0.1)
        if time.monotonic() - last > 1:
            print('watchdog: no step for 1 s, the job ends itself', flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=watch, daemon=True).start()
for step in range(3):
    last = time.monotonic()
    print('step', step, flush=True)
with open('fifo.lock', 'w') as f:
    time.sleep(60)
"""
        },
        wanted=(
            "watchdog: no step for 1 s, the job ends itself",
            "SIGTERM",
        ),
        helpful=(r"watchdog|guarded\.py|no step",),
        misleading=("memory|network|faulthandler|native",),
    ),
    Failure(
        name="flood-after-exception",
        way="300 kB of state are printed after the traceback",
        code="exception",
        command="python dump.py",
        files={
            "dump.py": """\
import sys, traceback
def hook(kind, value, tb):
    traceback.print_exception(kind, value, tb)
    print('--- state at the time of the error ---', file=sys.stderr)
    for i in range(9000):
        print(f'param.{i}: mean=0.0{i} std=1.0 grad=None', file=sys.stderr)
sys.excepthook = hook
batch = [[1, 2, 3], [4, 5]]
assert len({len(row) for row in batch}) == 1, 'rows of different lengths in batch 0'
"""
        },
        wanted="AssertionError: rows of different lengths in batch 0",
        helpful=(
            r"dump\.py",
            "batch 0|lengths|pad",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"param\.\d+",
        ),
    ),
    Failure(
        name="message-of-200-kb",
        way="an exception whose message is a whole batch",
        code="exception",
        command="python longmsg.py",
        files={
            "longmsg.py": """\
batch = list(range(30000))
batch[17] = 'x'
if any(not isinstance(v, int) for v in batch):
    raise ValueError(f'a batch must hold integers alone, got {batch}')
"""
        },
        wanted="ValueError: a batch must hold integers alone, got",
        helpful=(
            r"longmsg\.py",
            "integers",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
    Failure(
        name="pandas-missing-column",
        way="a column that is not there, below pandas",
        code="exception",
        venv="scratch",
        command="python table.py",
        files={
            "table.py": """\
import pandas as pd
d = pd.read_csv('train.csv')
y = d['label']
""",
            "train.csv": """\
text,Label
hello,1
""",
        },
        wanted="KeyError: 'label'",
        helpful=(
            "label|column",
            r"table\.py",
            r"train\.csv",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="pandas-no-parquet-engine",
        way="pandas lacks an optional package",
        code="environment",
        also_codes=("exception",),
        venv="scratch",
        command="python pq.py",
        files={
            "pq.py": """\
import pandas as pd
d = pd.DataFrame({'a': [1]})
d.to_parquet('a.parquet')
"""
        },
        wanted="Unable to find a usable engine; tried using: 'pyarrow', 'fastparquet'",
        helpful=("pyarrow|fastparquet",),
        misleading=(r"network|memory|pip: \[?pandas",),
    ),
    Failure(
        name="dataset-http-403",
        way="the server of the data set refuses",
        code="exception",
        also_codes=("data_unavailable",),
        command="python download.py",
        files={
            "download.py": """\
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(403, 'token expired')
    def log_message(self, *a):
        pass
s = http.server.HTTPServer(('127.0.0.1', 0), H)
threading.Thread(target=s.serve_forever, daemon=True).start()
def fetch(name):
    return urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/{name}').read()
fetch('wikitext-103.zip')
"""
        },
        wanted="HTTP Error 403: token expired",
        helpful=(
            "token|credential|403|wikitext",
            r"download\.py",
        ),
        misleading=("memory|MASTER_PORT|firewall",),
    ),
    Failure(
        name="dataset-permission-denied",
        way="the job's user may not read the data",
        code="data_unavailable",
        also_codes=("exception",),
        command="python readdata.py",
        files={
            "readdata.py": """\
import os
os.makedirs('/tmp/w-unseen/secret', mode=0o700, exist_ok=True)
os.setgid(65534); os.setuid(65534)
open('/tmp/w-unseen/secret/train.bin', 'rb')
"""
        },
        wanted="PermissionError: [Errno 13] Permission denied",
        helpful=(
            r"train\.bin",
            "permission|chmod|may not read|owner",
        ),
        misleading=("memory|network",),
    ),
    Failure(
        name="dataset-missing-file",
        way="a path of another machine",
        code="exception",
        also_codes=(
            "data_unavailable",
            "bad_input",
        ),
        command="python pretrain_mae.py --data /mnt/nvme0/laion",
        files={
            "pretrain_mae.py": """\
import os, sys
root = sys.argv[2]
print('indexing', root)
files = sorted(os.listdir(root))
print(len(files))
"""
        },
        wanted="FileNotFoundError: [Errno 2] No such file or directory: '/mnt/nvme0/laion'",
        helpful=(r"/mnt/nvme0/laion|--data|inputs?\b",),
        misleading=(r"memory|firewall|\bpip\b",),
    ),
    Failure(
        name="working-directory-wrong",
        way="the script expects to be started in its own folder",
        code="exception",
        also_codes=(
            "data_unavailable",
            "bad_input",
        ),
        command="python exp/train.py",
        files={
            "exp/train.py": "cfg = open('config.ini').read()\n",
            "exp/config.ini": """\
[train]
lr=0.1
""",
        },
        wanted="No such file or directory: 'config.ini'",
        helpful=(r"exp/config\.ini|cd exp|working dir|__file__",),
        misleading=(r"memory|network|\bpip\b|upload",),
    ),
    Failure(
        name="sqlite-locked",
        way="another process holds the data base of trials",
        code="exception",
        command="python trials.py",
        files={
            "trials.py": """\
import sqlite3
a = sqlite3.connect('study.db', timeout=0.2)
a.execute('create table t (x)')
a.commit()
a.execute('begin exclusive')
b = sqlite3.connect('study.db', timeout=0.2)
b.execute('insert into t values (1)')
"""
        },
        wanted="sqlite3.OperationalError: database is locked",
        helpful=(r"study\.db|trials\.py|sqlite|lock",),
        misleading=(r"memory|network|\bpip\b",),
    ),
    Failure(
        name="port-6006-taken",
        way="a dashboard on a fixed port that is taken",
        code="port_trouble",
        also_codes=("exception",),
        command="python dash.py",
        files={
            "dash.py": """\
import http.server, socket
other = socket.create_server(('127.0.0.1', 16006))
PORT = 16006
server = http.server.ThreadingHTTPServer(('127.0.0.1', PORT), http.server.SimpleHTTPRequestHandler)
"""
        },
        wanted="OSError: [Errno 98] Address already in use",
        helpful=(r"16006|PORT|dash\.py|port 0",),
        misleading=(r"memory|firewall|set `?MASTER_PORT|\bpip\b",),
    ),
    Failure(
        name="git-in-a-copy",
        way="the script asks git for the commit; the job's copy has none",
        code="exception",
        command="python provenance.py",
        files={
            "provenance.py": """\
import subprocess
sha = subprocess.run(['git', 'rev-parse', 'HEAD'], check=True, stdout=subprocess.PIPE).stdout
"""
        },
        wanted=(
            "fatal: not a git repository",
            "CalledProcessError: Command '['git', 'rev-parse', 'HEAD']'",
        ),
        helpful=(
            r"\bgit\b",
            r"provenance\.py",
        ),
        misleading=(r"memory|network|\bpip\b",),
    ),
    Failure(
        name="asyncio-task-never-retrieved",
        way="a task's exception shows at the end; the exit code is another",
        code="exit_code",
        command="python aio.py",
        files={
            "aio.py": """\
import asyncio, sys
async def heartbeat():
    raise ConnectionResetError('monitor went away')
async def main():
    t = asyncio.create_task(heartbeat())
    await asyncio.sleep(0.1)
    print('evaluation: accuracy 0.11 is below the required 0.80', file=sys.stderr)
    sys.exit(4)
asyncio.run(main())
"""
        },
        wanted="evaluation: accuracy 0.11 is below the required 0.80",
        helpful=(r"accuracy|0\.80",),
        misleading=("monitor|heartbeat|network|reset",),
    ),
    Failure(
        name="tenacity-retry-error",
        way="a retry library hides the error",
        code="exception",
        also_codes=("data_unavailable",),
        venv="scratch",
        command="python flaky.py",
        files={
            "flaky.py": """\
import socket
from tenacity import retry, stop_after_attempt
@retry(stop=stop_after_attempt(3))
def pull(key):
    return socket.create_connection(('127.0.0.1', 7), timeout=1)
pull('weights')
"""
        },
        wanted="ConnectionRefusedError: [Errno 111] Connection refused",
        helpful=(
            r"flaky\.py",
            r"127\.0\.0\.1|port 7|refused|listen",
        ),
        misleading=("memory|MASTER_PORT|NCCL|interface",),
    ),
    Failure(
        name="dataclass-unexpected-keyword",
        way="a config key that the class does not have",
        code="exception",
        also_codes=("bad_input",),
        command="python dc.py",
        files={
            "dc.py": """\
import dataclasses, yaml
@dataclasses.dataclass
class Sched:
    warmup_steps: int = 0
    decay: str = 'cosine'
s = Sched(**yaml.safe_load(open('sched.yml')))
""",
            "sched.yml": """\
warmup_step: 100
decay: linear
""",
        },
        wanted="got an unexpected keyword argument 'warmup_step'",
        helpful=(
            "warmup_steps?",
            r"sched\.yml",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="threads-under-ulimit-v",
        way="no room for another thread's stack",
        code="exception",
        also_codes=("host_oom",),
        command="ulimit -v 400000; exec python threads.py",
        files={
            "threads.py": """\
import threading, time
threading.stack_size(64 << 20)
for i in range(64):
    threading.Thread(target=time.sleep, args=(0.3,), daemon=True).start()
"""
        },
        wanted="RuntimeError: can't start new thread",
        helpful=(
            "thread|ulimit",
            r"threads\.py",
        ),
        misleading=(r"network|\bpip\b|smaller batch",),
    ),
    Failure(
        name="limit-passes-while-training",
        way="the time limit simply passes",
        code="timeout",
        rank=None,
        limit_s=2.5,
        command="python -u long.py",
        files={
            "long.py": """\
import time
for step in range(10000):
    time.sleep(0.1)
    print(f'step {step} loss {10 / (step + 1):.3f}')
"""
        },
        wanted=(
            "time limit",
            "limits.timeout",
            "timed out",
            "did not end within",
            "2.5 s",
            "2 s",
            "3 s",
        ),
        helpful=(r"limits\.timeout|--timeout|checkpoint|longer",),
        misleading=("network|hung|memory",),
    ),
    Failure(
        name="input-without-terminal",
        way="the script asks a question",
        code="exception",
        command="python ask.py",
        files={
            "ask.py": """\
print('runs/exp3 exists.')
if input('overwrite? [y/N] ') != 'y':
    raise SystemExit
"""
        },
        wanted="EOFError: EOF when reading a line",
        helpful=(r"input\(|stdin|terminal|interactive|ask\.py",),
        misleading=(r"memory|network|\bpip\b|checkpoint",),
    ),
    Failure(
        name="deadlock-until-limit",
        way="a lock taken twice",
        code="timeout",
        limit_s=2.5,
        command="python locked.py",
        files={
            "locked.py": """\
import threading
lock = threading.Lock()
def log(message):
    with lock:
        print(message, flush=True)
def step(n):
    with lock:
        log(f'step {n}')
print('start', flush=True)
step(1)
"""
        },
        wanted=(
            "locked.py",
            "with lock",
            "did not",
            "hung",
            "stuck",
            "time limit",
            "in log",
        ),
        helpful=(
            r"locked\.py",
            "lock",
        ),
        misleading=(r"network|memory|\bpip\b",),
    ),
    Failure(
        name="lines-after-traceback",
        way="experiment tracker and profiler talk after the traceback",
        code="exception",
        command="python talk.py",
        files={
            "talk.py": """\
import atexit, sys
def bye():
    e = sys.stderr
    print('mlflow: run 8c1f: status: FAILED', file=e)
    print('Profiler: warning: trace.json: 0 events', file=e)
    print('INFO: cleanup: removed 3 files', file=e)
    print('Total time: 0:00:03', file=e)
atexit.register(bye)
shape = (3, 224)
c, h, w = shape
"""
        },
        wanted="ValueError: not enough values to unpack (expected 3, got 2)",
        helpful=(
            r"talk\.py",
            "shape|unpack",
        ),
        misleading=(r"mlflow|Profiler|trace\.json|memory|network",),
    ),
    Failure(
        name="custom-exception-without-colon",
        way="an exception without a message, from a package of the project",
        code="exception",
        command="python -m engine.main",
        files={
            "engine/__init__.py": "",
            "engine/errors.py": """\
class EmptyReplayBuffer(Exception):
    pass
""",
            "engine/main.py": """\
from engine.errors import EmptyReplayBuffer
def sample(n):
    raise EmptyReplayBuffer
sample(32)
""",
        },
        wanted="EmptyReplayBuffer",
        helpful=(
            "engine[/.]main",
            "replay",
        ),
        misleading=(
            r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",
            r"\bpip\b",
        ),
    ),
    Failure(
        name="handled-oom-then-type-error",
        way="an out-of-memory error was handled; later another error",
        code="exception",
        command="ulimit -v 3000000; exec python autobatch.py",
        files={
            "autobatch.py": """\
import logging, numpy as np
logging.basicConfig()
size = 1 << 40
while size > 1 << 20:
    try:
        np.ones(size, dtype=np.uint8)
        break
    except MemoryError:
        logging.exception('batch %d: out of memory, halving', size)
        size //= 64
print('batch found', size)
print('loss: ' + 0.7)
"""
        },
        wanted='can only concatenate str (not "float") to str',
        helpful=(
            r"autobatch\.py",
            r"str\(|f-string",
        ),
        misleading=("out of memory|smaller batch|memory",),
    ),
    Failure(
        name="exit-code-in-finally",
        way="finally: os._exit(7) after a printed traceback",
        code="exception",
        also_codes=("exit_code",),
        command="python final.py",
        files={
            "final.py": """\
import os, sys, traceback
def main():
    weights = [1, 2, 3]
    return weights[len(weights)]
try:
    main()
except BaseException:
    traceback.print_exc()
finally:
    sys.stderr.flush()
    os._exit(7)
"""
        },
        wanted="IndexError: list index out of range",
        helpful=(
            r"final\.py",
            "weights",
        ),
        misleading=(r"network|firewall|out of memory|smaller batch|try again|submit again|MASTER_PORT",),
    ),
]
