"""Single Python processes that fail, without torch."""

from recorder import Failure

INFRA = r"network|firewall|out of memory|smaller batch|retry|MASTER_PORT"

FAILURES = [
    Failure(
        name="yaml-learning-rate-string",
        way="YAML reads 1e-4 as a string",
        code="exception",
        command="python fit.py --config conf/base.yaml",
        files={
            "fit.py": "import argparse, yaml\np = argparse.ArgumentParser(); p.add_argument('--config')\n"
            "cfg = yaml.safe_load(open(p.parse_args().config))\nprint('config', cfg)\nw = 1.0\n"
            "for step in range(3):\n    grad = 0.5\n    w -= cfg['lr'] * grad\n",
            "conf/base.yaml": "lr: 1e-4\nepochs: 3\n",
        },
        wanted="can't multiply sequence by non-int of type 'float'",
        helpful=(r"1e-4|1\.0e-4|\blr\b", r"fit\.py", r"base\.yaml", r"float\("),
        misleading=(INFRA,),
    ),
    Failure(
        name="json-trailing-comma",
        way="a comma too many in a JSON config",
        code="exception",
        command="python finetune.py",
        files={
            "finetune.py": "import json\ndef load(path):\n    with open(path) as f:\n        return json.load(f)\n"
            "cfg = load('ds_config.json')\n",
            "ds_config.json": '{\n  "train_batch_size": 32,\n  "zero_optimization": {"stage": 2},\n}\n',
        },
        wanted="JSONDecodeError: Expecting property name enclosed in double quotes: line 4 column 1",
        helpful=(r"ds_config\.json", r"finetune\.py", r"comma|line 4"),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="vocab-index-out-of-bounds",
        way="a token id beyond the embedding table",
        code="exception",
        command="python -u lm.py",
        files={
            "lm.py": "import numpy as np\ntable = np.zeros((1000, 8))\nprint('loading tokens')\n"
            "def embed(ids):\n    return table[ids]\nbatch = np.array([1, 5, 999, 1000])\nprint('step 0')\nembed(batch)\n"
        },
        wanted="IndexError: index 1000 is out of bounds for axis 0 with size 1000",
        helpful=(r"lm\.py", r"vocab|embed|table"),
        misleading=(INFRA,),
    ),
    Failure(
        name="checkpoint-truncated-pickle",
        way="a checkpoint cut off while it was written",
        code="exception",
        also_codes=("data_unavailable",),
        command="python resume.py",
        files={
            "resume.py": "import pickle\npickle.dump({'w': list(range(5000))}, open('last.pkl', 'wb'))\n"
            "data = open('last.pkl', 'rb').read()\nopen('last.pkl', 'wb').write(data[:len(data) // 2])\n"
            "print('resuming from last.pkl')\nstate = pickle.load(open('last.pkl', 'rb'))\n"
        },
        wanted="UnpicklingError: pickle data was truncated",
        helpful=(r"last\.pkl", r"resume\.py", r"checkpoint"),
        misleading=(INFRA, r"pip install"),
    ),
    Failure(
        name="npz-is-not-a-zip",
        way="a Git LFS pointer instead of the data",
        code="exception",
        also_codes=("data_unavailable",),
        command="python eval.py",
        files={
            "eval.py": "import numpy as np\nx = np.load('features.npz')['x']\n",
            "features.npz": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 183742\n",
        },
        wanted=("pickled data when allow_pickle=False", "This file contains pickled"),
        helpful=(r"features\.npz", r"eval\.py", r"lfs"),
        misleading=(INFRA,),
    ),
    Failure(
        name="diverged-multiline-message",
        way="a NaN guard with a message of many lines",
        code="exception",
        command="python -u pretrain.py",
        files={
            "pretrain.py": "import math\nclass TrainingDiverged(RuntimeError):\n    pass\n"
            "def guard(step, loss, norm):\n    if math.isnan(loss):\n        raise TrainingDiverged(\n"
            "            f'loss is nan at step {step}\\n\\n  gradient norm: {norm}\\n  learning rate: 0.3\\n'\n"
            "            '  last batches: shard-00012, shard-00013\\n\\nNote: lower the learning rate, or clip gradients.\\n'\n"
            "            'See: https://wiki.example.org/divergence')\n"
            "for step, loss in enumerate([3.1, 2.9, 14.0, float('nan')]):\n    print(f'step {step} loss {loss}')\n"
            "    guard(step, loss, float('inf'))\n"
        },
        wanted="TrainingDiverged: loss is nan at step 3",
        helpful=(r"learning rate|clip", r"pretrain\.py"),
        misleading=(INFRA,),
    ),
    Failure(
        name="assert-batch-divisible",
        way="an assertion with a message",
        code="exception",
        command="python main.py --global-batch 100",
        files={
            "main.py": "import sys\nbatch = int(sys.argv[2])\nmicro = 3\n"
            "assert batch % micro == 0, f'global batch {batch} is not a multiple of micro batch {micro}'\n"
        },
        wanted="AssertionError: global batch 100 is not a multiple of micro batch 3",
        helpful=(r"global-batch|global batch|micro", r"main\.py"),
        misleading=(r"memory|network|retry|pip",),
    ),
    Failure(
        name="chain-from-keyerror",
        way="raise … from …: the cause is the inner one",
        code="exception",
        command="python pipeline.py",
        files={
            "pipeline.py": "class PipelineError(Exception):\n    pass\n"
            "def decode(sample):\n    return sample['input_ids']\n"
            "def build(samples):\n    try:\n        return [decode(s) for s in samples]\n    except KeyError as error:\n"
            "        raise PipelineError('could not build the data pipeline') from error\n"
            "try:\n    build([{'input_ids': 1}, {'tokens': 2}])\nexcept PipelineError as error:\n"
            "    raise SystemError('training cannot start') from error\n"
        },
        wanted="KeyError: 'input_ids'",
        helpful=(r"input_ids", r"pipeline\.py"),
        misleading=(INFRA,),
    ),
    Failure(
        name="handler-fails-too",
        way="the error handler has a bug of its own",
        code="exception",
        command="python run_exp.py",
        files={
            "run_exp.py": "state = {'model': 1}\ntry:\n    opt = state['optimizer_state']\nexcept KeyError:\n"
            "    logger.warning('no optimizer state')\n    opt = None\n"
        },
        wanted=("NameError: name 'logger' is not defined", "KeyError: 'optimizer_state'"),
        helpful=(r"logger", r"run_exp\.py", r"optimizer_state"),
        misleading=(INFRA,),
    ),
    Failure(
        name="taskgroup-one-shard",
        way="an exception group of asyncio",
        code="exception",
        command="python fetch.py",
        files={
            "fetch.py": "import asyncio\nasync def shard(n):\n    await asyncio.sleep(0.01 * n)\n    if n == 3:\n"
            "        raise ValueError('shard 3 has 17 columns, expected 16')\n    await asyncio.sleep(1)\n"
            "async def main():\n    async with asyncio.TaskGroup() as group:\n        for n in range(6):\n"
            "            group.create_task(shard(n))\nasyncio.run(main())\n"
        },
        wanted="ValueError: shard 3 has 17 columns, expected 16",
        helpful=(r"shard 3|column", r"fetch\.py"),
        misleading=(INFRA,),
    ),
    Failure(
        name="group-of-three-kinds",
        way="an exception group raised by hand",
        code="exception",
        command="python validate.py",
        files={
            "validate.py": "def check(path):\n    if path.endswith('.txt'):\n        raise TypeError(f'{path}: not a parquet file')\n"
            "    raise FileNotFoundError(2, 'No such file or directory', path)\n"
            "errors = []\nfor path in ['a.parquet', 'b.txt', 'c.parquet']:\n    try:\n        check(path)\n"
            "    except Exception as error:\n        errors.append(error)\n"
            "if errors:\n    raise ExceptionGroup('the data set is not usable', errors)\n"
        },
        wanted=("No such file or directory: 'a.parquet'", "TypeError: b.txt: not a parquet file", "the data set is not usable"),
        also_codes=("data_unavailable",),
        helpful=(r"validate\.py", r"a\.parquet|b\.txt|c\.parquet"),
        misleading=(INFRA,),
    ),
    Failure(
        name="loguru-then-exit-3",
        way="the traceback is logged, then sys.exit(3)",
        code="exception",
        also_codes=("exit_code",),
        command="python service.py",
        venv="scratch",
        files={
            "service.py": "import sys\nfrom loguru import logger\n@logger.catch(onerror=lambda _: sys.exit(3))\n"
            "def main():\n    rates = {'en': 0.5, 'de': 0.5}\n    logger.info('mixing {}', rates)\n"
            "    total = sum(rates[k] for k in ('en', 'de', 'fr'))\n    print(total)\nmain()\n"
        },
        wanted="KeyError: 'fr'",
        helpful=(r"service\.py", r"'?fr'?\b.*rates|rates|mix"),
        misleading=(INFRA,),
    ),
    Failure(
        name="structlog-json-exception",
        way="the traceback is a field of a JSON line",
        code="exception",
        also_codes=("exit_code",),
        command="python worker.py",
        venv="scratch",
        files={
            "worker.py": "import sys, structlog\nstructlog.configure(processors=[structlog.processors.add_log_level,\n"
            "    structlog.processors.TimeStamper(fmt='iso'), structlog.processors.format_exc_info,\n"
            "    structlog.processors.JSONRenderer()])\nlog = structlog.get_logger()\n"
            "log.info('start', epochs=3)\ntry:\n    int('12,5')\nexcept ValueError:\n"
            "    log.exception('epoch failed', epoch=1)\n    log.info('shutting down', reason='error')\n    sys.exit(1)\n"
        },
        wanted="ValueError: invalid literal for int() with base 10: '12,5'",
        helpful=(r"worker\.py", r"12,5|comma|int\("),
        misleading=(INFRA,),
    ),
    Failure(
        name="tqdm-glued-traceback",
        way="the traceback begins at the end of a progress bar",
        code="exception",
        command="python bars.py",
        venv="scratch",
        files={
            "bars.py": "import time\nfrom tqdm import tqdm\nfor i in tqdm(range(400), desc='Epoch 1', mininterval=0):\n"
            "    time.sleep(0.002)\n    if i == 321:\n        loss = {'mlm': 1.0}['nsp']\n"
        },
        wanted="KeyError: 'nsp'",
        helpful=(r"bars\.py", r"nsp"),
        misleading=(INFRA,),
    ),
    Failure(
        name="retries-logged-then-exit-message",
        way="three tracebacks that were handled, then an exit with a message",
        code="exit_code",
        command="python get_and_train.py",
        files={
            "get_and_train.py": "import logging, sys, urllib.request\nlogging.basicConfig(level=logging.INFO)\n"
            "for attempt in range(3):\n    try:\n        urllib.request.urlopen('http://127.0.0.1:9/mirror', timeout=2)\n"
            "    except OSError:\n        logging.exception('mirror %d failed, trying the next one', attempt)\n"
            "logging.info('using the copy in the image')\n"
            "vocab = 32000\nif vocab % 128:\n    pass\nsys.exit('--vocab-size 32000 does not fit tokenizer.model, which has 32100 pieces')\n"
        },
        wanted="--vocab-size 32000 does not fit tokenizer.model, which has 32100 pieces",
        helpful=(r"vocab-size|tokenizer\.model|32100",),
        misleading=(r"refused|network|mirror|urlopen|firewall|memory",),
    ),
    Failure(
        name="ignored-del-then-segv",
        way="an exception in __del__, then SIGSEGV",
        code="signal",
        command="python leak.py",
        files={
            "leak.py": "import ctypes\nclass Pool:\n    def __del__(self):\n        self.queue.close()\n"
            "Pool()\nprint('epoch 1 done', flush=True)\nprint('epoch 2 done', flush=True)\nctypes.string_at(0)\n"
        },
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"faulthandler", r"ctypes|leak\.py|native"),
        misleading=(r"queue|AttributeError|__del__|memory limit|smaller batch",),
    ),
    Failure(
        name="atexit-fails-after-exception",
        way="an exit handler fails after the exception",
        code="exception",
        command="python tracked.py",
        files={
            "tracked.py": "import atexit\n@atexit.register\ndef flush():\n    print('tracker: uploading 3 files')\n"
            "    print('tracker: error: queue is closed')\n    raise RuntimeError('tracker was not finished')\n"
            "def schedule(step, warmup):\n    return step / warmup\nprint(schedule(1, 10))\nprint(schedule(2, 0))\n"
        },
        wanted="ZeroDivisionError: division by zero",
        helpful=(r"tracked\.py", r"warmup"),
        misleading=(r"tracker|queue|atexit|memory|network",),
    ),
    Failure(
        name="os-exit-after-message",
        way="os._exit with a message",
        code="exit_code",
        command="python licensed.py",
        files={
            "licensed.py": "import os, sys\nprint('loading solver')\nprint('solver version 11.2')\n"
            "sys.stderr.write('FATAL: no licence for 16 threads (feature OPT16), 4 are available\\n')\n"
            "sys.stderr.flush(); sys.stdout.flush()\nos._exit(42)\n"
        },
        wanted="FATAL: no licence for 16 threads (feature OPT16), 4 are available",
        helpful=(r"licen[cs]e|threads|OPT16",),
        misleading=(INFRA, r"segfault|native"),
    ),
    Failure(
        name="thread-fails-main-gives-up",
        way="an exception in a thread, then exit 1",
        code="exception",
        also_codes=("exit_code",),
        command="python prefetch.py",
        files={
            "prefetch.py": "import queue, sys, threading\nq = queue.Queue()\ndef fill():\n    for i in range(10):\n"
            "        q.put(100 // (5 - i))\nthreading.Thread(target=fill, name='prefetch', daemon=True).start()\n"
            "for step in range(10):\n    try:\n        print('batch', q.get(timeout=0.5))\n    except queue.Empty:\n"
            "        print('ERROR no batch for 0.5 s, giving up', file=sys.stderr)\n        sys.exit(1)\n"
        },
        wanted="ZeroDivisionError: integer division or modulo by zero",
        helpful=(r"prefetch", r"thread"),
        misleading=(INFRA, r"limits\.timeout"),
    ),
    Failure(
        name="thread-fails-main-waits",
        way="an exception in a thread; the main thread waits until the limit",
        code="exception",
        also_codes=("timeout",),
        command="python stream.py",
        limit_s=3.0,
        files={
            "stream.py": "import queue, threading\nq = queue.Queue()\ndef read():\n    for line in open('records.tsv'):\n"
            "        q.put(float(line.split('\\t')[1]))\nthreading.Thread(target=read, name='reader').start()\n"
            "total = 0.0\nwhile True:\n    total += q.get()\n    print('total', total, flush=True)\n",
            "records.tsv": "a\t1.0\nb\t2.0\nc 3.0\n",
        },
        wanted="IndexError: list index out of range",
        helpful=(r"stream\.py", r"records\.tsv", r"reader|thread"),
        misleading=(r"raise .{0,20}limits\.timeout|raise the (time )?limit|longer time",),
    ),
    Failure(
        name="segv-plain",
        way="SIGSEGV without a word",
        code="signal",
        command="python infer.py",
        files={"infer.py": "import ctypes\nprint('warming up', flush=True)\nctypes.memset(0x10, 0, 64)\n"},
        wanted=("SIGSEGV", "Segmentation fault", "signal 11"),
        helpful=(r"faulthandler", r"native|ctypes|infer\.py"),
        misleading=(r"memory limit|smaller batch|network",),
    ),
    Failure(
        name="segv-with-faulthandler",
        way="SIGSEGV with Python's fault handler on",
        code="signal",
        command="python -X faulthandler launch.py",
        files={
            "launch.py": "import kernels\nkernels.fused_softmax(4)\n",
            "kernels.py": "import ctypes\ndef fused_softmax(n):\n    return ctypes.c_int.from_address(n).value\n",
        },
        wanted=("Segmentation fault", "SIGSEGV"),
        helpful=(r"kernels\.py", r"fused_softmax"),
        misleading=(r"smaller batch|network|PYTHONFAULTHANDLER=1",),
    ),
    Failure(
        name="sigbus-truncated-mmap",
        way="a memory-mapped file was cut short by another program",
        code="signal",
        command="python mapped.py",
        files={
            "mapped.py": "import mmap, os\nwith open('tokens.bin', 'wb') as f:\n    f.write(b'x' * 1 << 0 or b'')\n"
            "    f.truncate(1 << 20)\nf = open('tokens.bin', 'r+b')\nm = mmap.mmap(f.fileno(), 0)\n"
            "print('mapped', len(m), flush=True)\nos.truncate('tokens.bin', 0)\nprint(m[500000])\n".replace("b'x' * 1 << 0 or b''", "b'x'")
        },
        wanted=("SIGBUS", "Bus error", "signal 7"),
        helpful=(r"mmap|mapped|tokens\.bin|file", r"faulthandler"),
        misleading=(r"network|pip install",),
    ),
    Failure(
        name="recursion-depth",
        way="a recursion without end",
        code="exception",
        command="python tree.py",
        files={
            "tree.py": "def depth(node):\n    return 1 + max(depth(c) for c in node['children'])\n"
            "root = {'children': []}\nroot['children'].append(root)\nprint(depth(root))\n"
        },
        wanted="RecursionError: maximum recursion depth exceeded",
        helpful=(r"tree\.py", r"recurs|cycle"),
        misleading=(INFRA,),
    ),
    Failure(
        name="ulimit-v-array",
        way="an array larger than the limit of memory",
        code="host_oom",
        also_codes=("exception",),
        command="ulimit -v 2000000; exec python big.py",
        files={
            "big.py": "import numpy as np\nprint('allocating the replay buffer', flush=True)\n"
            "buf = np.ones((1_000_000, 84, 84), dtype=np.float32)\n"
        },
        wanted="Unable to allocate 26.3 GiB for an array with shape (1000000, 84, 84)",
        helpful=(r"big\.py", r"ulimit", r"float32|dtype|shape|smaller|26"),
        misleading=(r"network|port|data-loader workers|fewer ranks",),
    ),
    Failure(
        name="fd-limit",
        way="more open files than allowed",
        code="exception",
        command="ulimit -n 64; exec python shards.py",
        files={
            "shards.py": "import os\nos.makedirs('shards', exist_ok=True)\nhandles = []\nfor i in range(200):\n"
            "    handles.append(open(f'shards/{i:05}.idx', 'w'))\n"
        },
        wanted="OSError: [Errno 24] Too many open files",
        helpful=(r"ulimit|descriptor|open files|close", r"shards\.py"),
        misleading=(r"disk|out of memory|network",),
    ),
    Failure(
        name="dev-full-log",
        way="no space for the metrics file",
        code="disk_full",
        command="ln -s /dev/full metrics.csv; exec python metrics.py",
        files={
            "metrics.py": "f = open('metrics.csv', 'w', buffering=1)\nfor step in range(100):\n    f.write(f'{step},{1 / (step + 1)}\\n')\n"
        },
        wanted="OSError: [Errno 28] No space left on device",
        helpful=(r"disk|space|metrics\.csv|muster rm|quota",),
        misleading=(r"out of memory|network|pip",),
    ),
    Failure(
        name="file-size-limit",
        way="a checkpoint larger than ulimit -f",
        code="exception",
        also_codes=("disk_full",),
        command="ulimit -f 100; exec python save.py",
        files={
            "save.py": "import os\nos.makedirs('ckpt')\nwith open('ckpt/step100.bin', 'wb') as f:\n    for _ in range(50):\n"
            "        f.write(os.urandom(10_000))\n"
        },
        wanted="OSError: [Errno 27] File too large",
        helpful=(r"ulimit|file size|limit", r"step100|save\.py"),
        misleading=(r"out of memory|network|muster rm",),
    ),
    Failure(
        name="cpu-time-limit",
        way="ulimit -t",
        code="signal",
        command="ulimit -St 1; exec python burn.py",
        files={"burn.py": "print('crunching', flush=True)\nn = 0\nwhile True:\n    n += 1\n"},
        wanted=("SIGXCPU", "CPU time limit exceeded", "signal 24"),
        helpful=(r"ulimit|CPU time",),
        misleading=(r"out of memory|network|limits\.timeout|faulthandler",),
    ),
    Failure(
        name="german-message",
        way="an exception with a German message",
        code="exception",
        command="python lauf.py",
        files={
            "lauf.py": "class DatenFehler(Exception):\n    pass\nprint('Lade Datensatz …')\n"
            "def pruefe(zeilen):\n    if not zeilen:\n        raise DatenFehler('Datei »korpus.txt« enthält keine Trainingsdaten')\n"
            "pruefe([])\n"
        },
        wanted="DatenFehler: Datei »korpus.txt« enthält keine Trainingsdaten",
        helpful=(r"korpus\.txt", r"lauf\.py"),
        misleading=(INFRA,),
    ),
    Failure(
        name="chinese-message",
        way="a Chinese message and exit",
        code="exit_code",
        command="python xunlian.py",
        files={
            "xunlian.py": "import sys\nprint('正在加载模型……')\nprint('错误:找不到词表文件 vocab.txt,请检查配置', file=sys.stderr)\nsys.exit(2)\n"
        },
        wanted="错误:找不到词表文件 vocab.txt,请检查配置",
        helpful=(r"vocab\.txt",),
        misleading=(INFRA, r"usage|argument"),
    ),
    Failure(
        name="spanish-exit-string",
        way="sys.exit with a Spanish sentence",
        code="exit_code",
        command="python entrena.py",
        files={
            "entrena.py": "import sys\nprint('Época 1: pérdida 0,93')\nprint('Época 2: pérdida 0,87')\n"
            "sys.exit('no se puede abrir el índice «train.idx»: versión 2, se esperaba 3')\n"
        },
        wanted="no se puede abrir el índice «train.idx»: versión 2, se esperaba 3",
        helpful=(r"train\.idx",),
        misleading=(INFRA,),
    ),
    Failure(
        name="csv-latin1",
        way="a file in Latin-1 read as UTF-8",
        code="exception",
        command="python prep.py",
        files={
            "prep.py": "open('names.csv', 'wb').write('id,name\\n1,Jos\\xe9\\n'.encode('latin-1'))\n"
            "for row in open('names.csv', encoding='utf-8'):\n    print(row)\n"
        },
        wanted="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9",
        helpful=(r"encoding|latin", r"prep\.py", r"names\.csv"),
        misleading=(INFRA,),
    ),
    Failure(
        name="ascii-stdout",
        way="an ellipsis printed to an ASCII terminal",
        code="exception",
        command="python greet.py",
        variables={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        files={"greet.py": "print('starting')\nprint('übrig: 3 Epochen')\n"},
        wanted="UnicodeEncodeError: 'ascii' codec can't encode character",
        helpful=(r"PYTHONIOENCODING|PYTHONUTF8|encoding|LANG", r"greet\.py"),
        misleading=(INFRA,),
    ),
    Failure(
        name="shadowed-queue",
        way="a file of the project has the name of a standard module",
        code="exception",
        also_codes=("environment",),
        command="python go.py",
        files={"go.py": "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor(2)\n", "queue.py": "ITEMS = []\n"},
        wanted=("module 'queue' has no attribute 'SimpleQueue'", "has no attribute 'SimpleQueue'"),
        helpful=(r"queue\.py", r"rename|shadow"),
        misleading=(INFRA, r"pip install|pip: \["),
    ),
    Failure(
        name="module-similar-file",
        way="the module's name is misspelt; a similar file lies beside it",
        code="environment",
        command="python train_vit.py",
        files={"train_vit.py": "from data_util import collate\n", "data_utils.py": "def collate(x):\n    return x\n"},
        wanted="ModuleNotFoundError: No module named 'data_util'",
        helpful=(r"data_utils",),
        misleading=(r"pip: \[data_util|pip install data_util|network",),
    ),
    Failure(
        name="module-in-subfolder",
        way="the script lies in a folder and imports from the folder above",
        code="environment",
        command="python scripts/run.py",
        files={"scripts/run.py": "from models.unet import UNet\n", "models/__init__.py": "", "models/unet.py": "class UNet: ...\n"},
        wanted="No module named 'models'",
        helpful=(r"PYTHONPATH|python -m scripts|models/", r"working dir|sys\.path"),
        misleading=(r"pip: \[models|pip install models|network",),
    ),
    Failure(
        name="module-cv2",
        way="cv2 is opencv-python",
        code="environment",
        command="python augment.py",
        files={"augment.py": "import os\nimport cv2\n"},
        wanted="ModuleNotFoundError: No module named 'cv2'",
        helpful=(r"opencv-python",),
        misleading=(r"pip install cv2|pip: \[cv2", r"network"),
    ),
    Failure(
        name="module-flash-attn-inside-try",
        way="the import error is raised again with advice",
        code="environment",
        also_codes=("exception",),
        command="python gpt.py",
        files={
            "gpt.py": "try:\n    import flash_attn\nexcept ImportError as error:\n"
            "    raise ImportError('--attention flash needs the package flash-attn') from error\n"
        },
        wanted=("No module named 'flash_attn'", "--attention flash needs the package flash-attn"),
        helpful=(r"flash[-_]attn",),
        misleading=(r"network|memory",),
    ),
    Failure(
        name="relative-import",
        way="a relative import in a script",
        code="environment",
        also_codes=("exception",),
        command="python trainer/entry.py",
        files={"trainer/entry.py": "from .model import Net\n", "trainer/__init__.py": "", "trainer/model.py": "class Net: ...\n"},
        wanted="ImportError: attempted relative import with no known parent package",
        helpful=(r"python -m trainer|-m ", r"entry\.py|\.model"),
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
            "losses.py": "from metrics import accuracy\ndef ce(): ...\n",
            "metrics.py": "from losses import ce\ndef accuracy(): ...\n",
        },
        wanted="cannot import name 'ce' from partially initialized module 'losses'",
        helpful=(r"losses|metrics", r"circular"),
        misleading=(r"pip install|pip: \[|network",),
    ),
    Failure(
        name="numpy-2-removed-name",
        way="code for NumPy 1",
        code="exception",
        also_codes=("environment",),
        command="python old.py",
        files={"old.py": "import numpy as np\nx = np.zeros(3, dtype=np.float_)\n"},
        wanted="`np.float_` was removed in the NumPy 2.0 release",
        helpful=(r"np\.float64|float64|numpy", r"old\.py"),
        misleading=(INFRA,),
    ),
    Failure(
        name="tab-error",
        way="tabs and spaces mixed in an imported file",
        code="exception",
        command="python app.py",
        files={"app.py": "import layers\n", "layers.py": "def f(x):\n    if x:\n\treturn 1\n    return 2\n"},
        wanted="TabError: inconsistent use of tabs and spaces in indentation",
        helpful=(r"layers\.py",),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="notebook-magic",
        way="a notebook saved as a script",
        code="exception",
        command="python exported.py",
        files={"exported.py": "# In[1]:\nimport math\n%matplotlib inline\nprint(math.pi)\n"},
        wanted="SyntaxError: invalid syntax",
        helpful=(r"exported\.py", r"%matplotlib|notebook|line 3"),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="python2-print",
        way="a script for Python 2",
        code="exception",
        command="python legacy.py",
        files={"legacy.py": "import os\nprint 'epoch', 1\n"},
        wanted="SyntaxError: Missing parentheses in call to 'print'",
        helpful=(r"legacy\.py", r"Python 2|parenthes"),
        misleading=(INFRA,),
    ),
    Failure(
        name="environment-variable-missing",
        way="a variable that nobody set",
        code="exception",
        also_codes=("bad_input",),
        command="python paths.py",
        files={"paths.py": "import os\nROOT = os.environ['IMAGENET_ROOT']\nprint(ROOT)\n"},
        wanted="KeyError: 'IMAGENET_ROOT'",
        helpful=(r"IMAGENET_ROOT",),
        misleading=(INFRA, r"torchrun|process count"),
    ),
    Failure(
        name="argparse-invalid-choice",
        way="argparse rejects a value",
        code="exit_code",
        also_codes=("bad_input",),
        command="python cli.py --precision bf61",
        files={
            "cli.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--precision', choices=['fp32', 'bf16'])\np.parse_args()\n"
        },
        wanted="argument --precision: invalid choice: 'bf61'",
        helpful=(r"--precision|bf16|bf61",),
        misleading=(INFRA,),
    ),
    Failure(
        name="argparse-unrecognized",
        way="argparse does not know an option",
        code="exit_code",
        also_codes=("bad_input",),
        command="python tune.py --epochs 3 --learning_rate 0.1",
        files={
            "tune.py": "import argparse\np = argparse.ArgumentParser(description='tune')\np.add_argument('--epochs', type=int)\n"
            "p.add_argument('--learning-rate', type=float)\nargs = p.parse_args()\n"
        },
        wanted="error: unrecognized arguments: --learning_rate 0.1",
        helpful=(r"learning[-_]rate",),
        misleading=(INFRA,),
    ),
    Failure(
        name="click-no-such-option",
        way="click rejects an option",
        code="exit_code",
        also_codes=("bad_input",),
        command="python clicky.py --ouput-dir out",
        files={
            "clicky.py": "import click\n@click.command()\n@click.option('--output-dir')\ndef main(output_dir):\n    pass\nmain()\n"
        },
        wanted="No such option '--ouput-dir'",
        helpful=(r"--output-dir|--ouput-dir",),
        misleading=(INFRA,),
    ),
    Failure(
        name="typer-rich-traceback",
        way="typer prints a traceback in a box",
        code="exception",
        command="python boxed.py --layers 0",
        venv="scratch",
        files={
            "boxed.py": "import typer\napp = typer.Typer()\n@app.command()\ndef main(layers: int = 2):\n"
            "    width = 1024\n    print('width', width)\n    print(width // layers)\napp()\n"
        },
        wanted="ZeroDivisionError: integer division or modulo by zero",
        helpful=(r"boxed\.py", r"layers"),
        misleading=(INFRA,),
    ),
    Failure(
        name="rich-traceback-installed",
        way="rich.traceback.install()",
        code="exception",
        command="python pretty.py",
        venv="scratch",
        files={
            "pretty.py": "from rich.traceback import install\ninstall(show_locals=True)\n"
            "def pad(rows, to):\n    return [row + [0] * (to - len(row)) for row in rows]\n"
            "def main():\n    rows = [[1, 2], None, [3]]\n    pad(rows, 4)\nmain()\n"
        },
        wanted="TypeError: object of type 'NoneType' has no len()",
        helpful=(r"pretty\.py", r"None|rows|pad"),
        misleading=(INFRA,),
    ),
    Failure(
        name="ipython-traceback",
        way="run by IPython",
        code="exception",
        command="ipython --no-banner analysis.py",
        venv="scratch",
        files={"analysis.py": "scores = {'a': 1}\ndef best(scores):\n    return scores.most_common(1)\nbest(scores)\n"},
        wanted="AttributeError: 'dict' object has no attribute 'most_common'",
        helpful=(r"analysis\.py", r"most_common|Counter"),
        misleading=(INFRA,),
    ),
    Failure(
        name="hydra-unknown-key",
        way="hydra rejects an override",
        code="exit_code",
        also_codes=("exception", "bad_input"),
        command="python hyd.py optim.learnrate=0.1",
        venv="scratch",
        files={
            "hyd.py": "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
            "def main(cfg):\n    print(cfg)\nmain()\n",
            "conf/config.yaml": "optim:\n  lr: 0.01\n",
        },
        wanted=("Could not override 'optim.learnrate'", "Key 'learnrate' is not in struct"),
        helpful=(r"learnrate|optim|\+optim|conf/config\.yaml",),
        misleading=(INFRA,),
    ),
    Failure(
        name="hydra-missing-value",
        way="a mandatory value of a hydra config",
        code="exception",
        also_codes=("exit_code", "bad_input"),
        command="python hyd2.py",
        venv="scratch",
        files={
            "hyd2.py": "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
            "def main(cfg):\n    print('reading', cfg.data.path)\nmain()\n",
            "conf/config.yaml": "data:\n  path: ???\n",
        },
        wanted="Missing mandatory value: data.path",
        helpful=(r"data\.path", r"config\.yaml"),
        misleading=(INFRA,),
    ),
    Failure(
        name="hydra-error-in-task",
        way="hydra shortens the traceback",
        code="exception",
        also_codes=("exit_code",),
        command="python hyd3.py",
        venv="scratch",
        files={
            "hyd3.py": "import hydra\ndef build(name):\n    return {'mlp': 1}[name]\n"
            "@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
            "def main(cfg):\n    build(cfg.model)\nmain()\n",
            "conf/config.yaml": "model: transformer\n",
        },
        wanted="KeyError: 'transformer'",
        helpful=(r"hyd3\.py", r"transformer|model"),
        misleading=(INFRA, r"HYDRA_FULL_ERROR=1$"),
    ),
    Failure(
        name="pydantic-validation",
        way="a validation error of several lines",
        code="exception",
        also_codes=("bad_input",),
        command="python settings.py",
        files={
            "settings.py": "from pydantic import BaseModel\nclass Train(BaseModel):\n    epochs: int\n    lr: float\n    name: str\n"
            "Train.model_validate({'epochs': 'three', 'name': 'a'})\n"
        },
        wanted=("2 validation errors for Train", "unable to parse string as an integer"),
        helpful=(r"epochs|\blr\b", r"settings\.py"),
        misleading=(INFRA, r"pydantic\.dev"),
    ),
    Failure(
        name="absl-unknown-flag",
        way="absl rejects a flag",
        code="exit_code",
        also_codes=("bad_input",),
        command="python absl_main.py --batchsize=3",
        venv="scratch",
        files={
            "absl_main.py": "from absl import app, flags\nflags.DEFINE_integer('batch_size', 1, 'batch size')\n"
            "def main(argv):\n    print(flags.FLAGS.batch_size)\napp.run(main)\n"
        },
        wanted="Unknown command line flag 'batchsize'",
        helpful=(r"batch_?size",),
        misleading=(r"smaller batch|memory|network",),
    ),
    Failure(
        name="interrupted-from-within",
        way="SIGINT that a helper sent",
        code="signal",
        also_codes=("exception",),
        command="python sigint.py",
        files={
            "sigint.py": "import os, signal, threading, time\n"
            "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "for step in range(1000):\n    time.sleep(0.05)\n"
        },
        wanted=("KeyboardInterrupt", "SIGINT"),
        helpful=(r"SIGINT|interrupt|sigint\.py",),
        misleading=(r"memory|network|pip",),
    ),
    Failure(
        name="watchdog-sigterm",
        way="the script's watchdog sends SIGTERM to itself",
        code="signal",
        command="python guarded.py",
        files={
            "guarded.py": "import os, signal, sys, threading, time\nlast = time.monotonic()\ndef watch():\n    while True:\n"
            "        time.sleep(0.1)\n        if time.monotonic() - last > 1:\n"
            "            print('watchdog: no step for 1 s, the job ends itself', flush=True)\n"
            "            os.kill(os.getpid(), signal.SIGTERM)\nthreading.Thread(target=watch, daemon=True).start()\n"
            "for step in range(3):\n    last = time.monotonic()\n    print('step', step, flush=True)\nwith open('fifo.lock', 'w') as f:\n    time.sleep(60)\n"
        },
        wanted=("watchdog: no step for 1 s, the job ends itself", "SIGTERM"),
        helpful=(r"watchdog|guarded\.py|no step",),
        misleading=(r"memory|network|faulthandler|native",),
    ),
    Failure(
        name="flood-after-exception",
        way="300 kB of state are printed after the traceback",
        code="exception",
        command="python dump.py",
        files={
            "dump.py": "import sys, traceback\ndef hook(kind, value, tb):\n    traceback.print_exception(kind, value, tb)\n"
            "    print('--- state at the time of the error ---', file=sys.stderr)\n    for i in range(9000):\n"
            "        print(f'param.{i}: mean=0.0{i} std=1.0 grad=None', file=sys.stderr)\nsys.excepthook = hook\n"
            "batch = [[1, 2, 3], [4, 5]]\nassert len({len(row) for row in batch}) == 1, 'rows of different lengths in batch 0'\n"
        },
        wanted="AssertionError: rows of different lengths in batch 0",
        helpful=(r"dump\.py", r"batch 0|lengths|pad"),
        misleading=(INFRA, r"param\.\d+"),
    ),
    Failure(
        name="message-of-200-kb",
        way="an exception whose message is a whole batch",
        code="exception",
        command="python longmsg.py",
        files={
            "longmsg.py": "batch = list(range(30000))\nbatch[17] = 'x'\nif any(not isinstance(v, int) for v in batch):\n"
            "    raise ValueError(f'a batch must hold integers alone, got {batch}')\n"
        },
        wanted="ValueError: a batch must hold integers alone, got",
        helpful=(r"longmsg\.py", r"integers"),
        misleading=(INFRA,),
    ),
    Failure(
        name="pandas-missing-column",
        way="a column that is not there, below pandas",
        code="exception",
        command="python table.py",
        venv="scratch",
        files={
            "table.py": "import pandas as pd\nd = pd.read_csv('train.csv')\ny = d['label']\n",
            "train.csv": "text,Label\nhello,1\n",
        },
        wanted="KeyError: 'label'",
        helpful=(r"label|column", r"table\.py", r"train\.csv"),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="pandas-no-parquet-engine",
        way="pandas lacks an optional package",
        code="environment",
        also_codes=("exception",),
        command="python pq.py",
        venv="scratch",
        files={"pq.py": "import pandas as pd\nd = pd.DataFrame({'a': [1]})\nd.to_parquet('a.parquet')\n"},
        wanted="Unable to find a usable engine; tried using: 'pyarrow', 'fastparquet'",
        helpful=(r"pyarrow|fastparquet",),
        misleading=(r"network|memory|pip: \[?pandas",),
    ),
    Failure(
        name="dataset-http-403",
        way="the server of the data set refuses",
        code="exception",
        also_codes=("data_unavailable",),
        command="python download.py",
        files={
            "download.py": "import http.server, threading, urllib.request\nclass H(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n        self.send_error(403, 'token expired')\n    def log_message(self, *a):\n        pass\n"
            "s = http.server.HTTPServer(('127.0.0.1', 0), H)\nthreading.Thread(target=s.serve_forever, daemon=True).start()\n"
            "def fetch(name):\n    return urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/{name}').read()\nfetch('wikitext-103.zip')\n"
        },
        wanted="HTTP Error 403: token expired",
        helpful=(r"token|credential|403|wikitext", r"download\.py"),
        misleading=(r"memory|MASTER_PORT|firewall",),
    ),
    Failure(
        name="dataset-permission-denied",
        way="the job's user may not read the data",
        code="data_unavailable",
        also_codes=("exception",),
        command="python readdata.py",
        files={
            "readdata.py": "import os\nos.makedirs('/tmp/w-unseen/secret', mode=0o700, exist_ok=True)\n"
            "os.setgid(65534); os.setuid(65534)\nopen('/tmp/w-unseen/secret/train.bin', 'rb')\n"
        },
        wanted="PermissionError: [Errno 13] Permission denied",
        helpful=(r"train\.bin", r"permission|chmod|may not read|owner"),
        misleading=(r"memory|network",),
    ),
    Failure(
        name="dataset-missing-file",
        way="a path of another machine",
        code="exception",
        also_codes=("data_unavailable", "bad_input"),
        command="python pretrain_mae.py --data /mnt/nvme0/laion",
        files={
            "pretrain_mae.py": "import os, sys\nroot = sys.argv[2]\nprint('indexing', root)\n"
            "files = sorted(os.listdir(root))\nprint(len(files))\n"
        },
        wanted="FileNotFoundError: [Errno 2] No such file or directory: '/mnt/nvme0/laion'",
        helpful=(r"/mnt/nvme0/laion|--data|inputs?\b",),
        misleading=(r"memory|firewall|pip",),
    ),
    Failure(
        name="working-directory-wrong",
        way="the script expects to be started in its own folder",
        code="exception",
        also_codes=("data_unavailable", "bad_input"),
        command="python exp/train.py",
        files={"exp/train.py": "cfg = open('config.ini').read()\n", "exp/config.ini": "[train]\nlr=0.1\n"},
        wanted="No such file or directory: 'config.ini'",
        helpful=(r"exp/config\.ini|cd exp|working dir|__file__",),
        misleading=(r"memory|network|pip|upload",),
    ),
    Failure(
        name="sqlite-locked",
        way="another process holds the data base of trials",
        code="exception",
        command="python trials.py",
        files={
            "trials.py": "import sqlite3\na = sqlite3.connect('study.db', timeout=0.2)\na.execute('create table t (x)')\na.commit()\n"
            "a.execute('begin exclusive')\nb = sqlite3.connect('study.db', timeout=0.2)\nb.execute('insert into t values (1)')\n"
        },
        wanted="sqlite3.OperationalError: database is locked",
        helpful=(r"study\.db|trials\.py|sqlite|lock",),
        misleading=(r"memory|network|pip",),
    ),
    Failure(
        name="port-6006-taken",
        way="a dashboard on a fixed port that is taken",
        code="port_trouble",
        also_codes=("exception",),
        command="python dash.py",
        files={
            "dash.py": "import http.server, socket\nother = socket.create_server(('127.0.0.1', 16006))\n"
            "PORT = 16006\nserver = http.server.ThreadingHTTPServer(('127.0.0.1', PORT), http.server.SimpleHTTPRequestHandler)\n"
        },
        wanted="OSError: [Errno 98] Address already in use",
        helpful=(r"16006|PORT|dash\.py|port 0",),
        misleading=(r"memory|firewall|set `?MASTER_PORT|pip",),
    ),
    Failure(
        name="git-in-a-copy",
        way="the script asks git for the commit; the job's copy has none",
        code="exception",
        command="python provenance.py",
        files={
            "provenance.py": "import subprocess\nsha = subprocess.run(['git', 'rev-parse', 'HEAD'], check=True, stdout=subprocess.PIPE).stdout\n"
        },
        wanted=("fatal: not a git repository", "CalledProcessError: Command '['git', 'rev-parse', 'HEAD']'"),
        helpful=(r"\bgit\b", r"provenance\.py"),
        misleading=(r"memory|network|pip",),
    ),
    Failure(
        name="asyncio-task-never-retrieved",
        way="a task's exception shows at the end; the exit code is another",
        code="exit_code",
        command="python aio.py",
        files={
            "aio.py": "import asyncio, sys\nasync def heartbeat():\n    raise ConnectionResetError('monitor went away')\n"
            "async def main():\n    t = asyncio.create_task(heartbeat())\n    await asyncio.sleep(0.1)\n"
            "    print('evaluation: accuracy 0.11 is below the required 0.80', file=sys.stderr)\n    sys.exit(4)\nasyncio.run(main())\n"
        },
        wanted="evaluation: accuracy 0.11 is below the required 0.80",
        helpful=(r"accuracy|0\.80",),
        misleading=(r"monitor|heartbeat|network|reset",),
    ),
    Failure(
        name="tenacity-retry-error",
        way="a retry library hides the error",
        code="exception",
        also_codes=("data_unavailable",),
        command="python flaky.py",
        venv="scratch",
        files={
            "flaky.py": "import socket\nfrom tenacity import retry, stop_after_attempt\n@retry(stop=stop_after_attempt(3))\n"
            "def pull(key):\n    return socket.create_connection(('127.0.0.1', 7), timeout=1)\npull('weights')\n"
        },
        wanted="ConnectionRefusedError: [Errno 111] Connection refused",
        helpful=(r"flaky\.py", r"127\.0\.0\.1|port 7|refused|listen"),
        misleading=(r"memory|MASTER_PORT|NCCL|interface",),
    ),
    Failure(
        name="dataclass-unexpected-keyword",
        way="a config key that the class does not have",
        code="exception",
        also_codes=("bad_input",),
        command="python dc.py",
        files={
            "dc.py": "import dataclasses, yaml\n@dataclasses.dataclass\nclass Sched:\n    warmup_steps: int = 0\n    decay: str = 'cosine'\n"
            "s = Sched(**yaml.safe_load(open('sched.yml')))\n",
            "sched.yml": "warmup_step: 100\ndecay: linear\n",
        },
        wanted="got an unexpected keyword argument 'warmup_step'",
        helpful=(r"warmup_steps?", r"sched\.yml"),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="threads-under-ulimit-v",
        way="no room for another thread's stack",
        code="exception",
        also_codes=("host_oom",),
        command="ulimit -v 400000; exec python threads.py",
        files={
            "threads.py": "import threading, time\nthreading.stack_size(64 << 20)\nfor i in range(64):\n"
            "    threading.Thread(target=time.sleep, args=(0.3,), daemon=True).start()\n"
        },
        wanted="RuntimeError: can't start new thread",
        helpful=(r"thread|ulimit", r"threads\.py"),
        misleading=(r"network|pip|smaller batch",),
    ),
    Failure(
        name="limit-passes-while-training",
        way="the time limit simply passes",
        code="timeout",
        rank=None,
        command="python -u long.py",
        limit_s=2.5,
        files={"long.py": "import time\nfor step in range(10000):\n    time.sleep(0.1)\n    print(f'step {step} loss {10 / (step + 1):.3f}')\n"},
        wanted=("time limit", "limits.timeout", "timed out", "did not end within", "2.5 s", "2 s", "3 s"),
        helpful=(r"limits\.timeout|--timeout|checkpoint|longer",),
        misleading=(r"network|hung|memory",),
    ),
    Failure(
        name="input-without-terminal",
        way="the script asks a question",
        code="exception",
        command="python ask.py",
        files={"ask.py": "print('runs/exp3 exists.')\nif input('overwrite? [y/N] ') != 'y':\n    raise SystemExit\n"},
        wanted="EOFError: EOF when reading a line",
        helpful=(r"input\(|stdin|terminal|interactive|ask\.py",),
        misleading=(r"memory|network|pip|checkpoint",),
    ),
    Failure(
        name="deadlock-until-limit",
        way="a lock taken twice",
        code="timeout",
        command="python locked.py",
        limit_s=2.5,
        files={
            "locked.py": "import threading\nlock = threading.Lock()\ndef log(message):\n    with lock:\n        print(message, flush=True)\n"
            "def step(n):\n    with lock:\n        log(f'step {n}')\nprint('start', flush=True)\nstep(1)\n"
        },
        wanted=("locked.py", "with lock", "did not", "hung", "stuck", "time limit", "in log"),
        helpful=(r"locked\.py", r"lock"),
        misleading=(r"network|memory|pip",),
    ),
    Failure(
        name="lines-after-traceback",
        way="experiment tracker and profiler talk after the traceback",
        code="exception",
        command="python talk.py",
        files={
            "talk.py": "import atexit, sys\ndef bye():\n    e = sys.stderr\n    print('mlflow: run 8c1f: status: FAILED', file=e)\n"
            "    print('Profiler: warning: trace.json: 0 events', file=e)\n    print('INFO: cleanup: removed 3 files', file=e)\n"
            "    print('Total time: 0:00:03', file=e)\natexit.register(bye)\n"
            "shape = (3, 224)\nc, h, w = shape\n"
        },
        wanted="ValueError: not enough values to unpack (expected 3, got 2)",
        helpful=(r"talk\.py", r"shape|unpack"),
        misleading=(r"mlflow|Profiler|trace\.json|memory|network",),
    ),
    Failure(
        name="custom-exception-without-colon",
        way="an exception without a message, from a package of the project",
        code="exception",
        command="python -m engine.main",
        files={
            "engine/__init__.py": "",
            "engine/errors.py": "class EmptyReplayBuffer(Exception):\n    pass\n",
            "engine/main.py": "from engine.errors import EmptyReplayBuffer\ndef sample(n):\n    raise EmptyReplayBuffer\nsample(32)\n",
        },
        wanted="EmptyReplayBuffer",
        helpful=(r"engine[/.]main", r"replay"),
        misleading=(INFRA, r"pip"),
    ),
    Failure(
        name="handled-oom-then-type-error",
        way="an out-of-memory error was handled; later another error",
        code="exception",
        command="ulimit -v 3000000; exec python autobatch.py",
        files={
            "autobatch.py": "import logging, numpy as np\nlogging.basicConfig()\nsize = 1 << 40\nwhile size > 1 << 20:\n    try:\n"
            "        np.ones(size, dtype=np.uint8)\n        break\n    except MemoryError:\n"
            "        logging.exception('batch %d: out of memory, halving', size)\n        size //= 64\n"
            "print('batch found', size)\nprint('loss: ' + 0.7)\n"
        },
        wanted='can only concatenate str (not "float") to str',
        helpful=(r"autobatch\.py", r"str\(|f-string"),
        misleading=(r"out of memory|smaller batch|memory",),
    ),
    Failure(
        name="exit-code-in-finally",
        way="finally: os._exit(7) after a printed traceback",
        code="exception",
        also_codes=("exit_code",),
        command="python final.py",
        files={
            "final.py": "import os, sys, traceback\ndef main():\n    weights = [1, 2, 3]\n    return weights[len(weights)]\n"
            "try:\n    main()\nexcept BaseException:\n    traceback.print_exc()\nfinally:\n    sys.stderr.flush()\n    os._exit(7)\n"
        },
        wanted="IndexError: list index out of range",
        helpful=(r"final\.py", r"weights"),
        misleading=(INFRA,),
    ),
]
