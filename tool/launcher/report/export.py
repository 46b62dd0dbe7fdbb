# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py export`: the metrics of a run for TensorBoard or MLflow, through their own packages."""
import json
import os

from ..common.command_line import name_given, new_parser
from ..common.exit_status import FAILURE, OK, USAGE, Failure, words_of
from ..common.figures import count_of
from ..common.optional import optional
from ..common.output import write_quietly
from ..common.printable import printable
from .commands import RUN_HELP, record_of
from .compare import config_of

MOST_AT_ONCE = 1000        # metrics in a call of MLflow
MOST_PARAMETERS = 100      # in a call
MOST_VALUE = 500           # characters of a parameter's value, an old limit of MLflow
EXPERIMENT = "paracel"


def scalars(record):
    """(name, step, wall time, value) of every finite value, by name. The step is the round, or where rounds begin again (stages)
    the number of the line."""
    wall = record.run.get("wall")
    wall = wall if isinstance(wall, (int, float)) else 0.0
    staged = record.has_stages()
    for name, series in record.metrics.items():
        for i, (r, t, v) in enumerate(zip(series.rounds, series.seconds, series.values)):
            if v is not None:
                yield name, i + 1 if staged or r is None else int(r), wall + t, v


def to_tensorboard(record, folder):
    """Writes an event file into the folder. Returns the number of values."""
    package = optional("tensorboardX", "tensorboardX", "--tensorboard")
    count = 0
    writer = package.SummaryWriter(logdir=folder)
    try:
        for name, step, wall, value in scalars(record):
            writer.add_scalar(name, value, step, walltime=wall)
            count += 1
        for name, value in record.results:
            writer.add_scalar(f"result/{name}", value, 0)
            count += 1
        about = {k: v for k, v in record.run.items() if k not in ("t", "event", "config")}
        writer.add_text("run", "    " + json.dumps(about, indent=1).replace("\n", "\n    "), 0)
        if record.run.get("config"):
            writer.add_text("config", "    " + str(record.run["config"]).replace("\n", "\n    "), 0)
    finally:
        writer.close()
    return count


def mlflow_name(name):
    """MLflow's names have letters, digits, and _-. /."""
    return "".join(c if c.isalnum() and c.isascii() or c in "_-. /" else "_" for c in name) or "_"


def to_mlflow(record, uri, experiment):
    """Writes a run into the tracking server or folder `uri` (None: MLflow's own setting). Returns (values, id of the run)."""
    optional("mlflow", "mlflow-skinny", "--mlflow")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    number = found.experiment_id if found is not None else client.create_experiment(experiment)
    wall = record.run.get("wall")
    began = int(1000 * (wall if isinstance(wall, (int, float)) else 0))
    run = client.create_run(number, start_time=began, run_name=os.path.basename(os.path.abspath(record.folder)))
    name = run.info.run_id
    metrics = [Metric(mlflow_name(n), v, int(1000 * at), step) for n, step, at, v in scalars(record)]
    metrics += [Metric(mlflow_name(f"result/{n}"), v, began + int(1000 * record.took()), 0) for n, v in record.results]
    for i in range(0, len(metrics), MOST_AT_ONCE):
        client.log_batch(name, metrics=metrics[i:i + MOST_AT_ONCE])
    about = {k: record.run.get(k) for k in ("job", "program", "workers", "servers", "replicas", "method", "host")}
    about.update((f"config.{k}" if k else "config", v) for k, v in config_of(record).items())
    parameters = [Param(mlflow_name(k), str(v)[:MOST_VALUE]) for k, v in about.items() if v is not None]
    for i in range(0, len(parameters), MOST_PARAMETERS):
        client.log_batch(name, params=parameters[i:i + MOST_PARAMETERS])
    client.set_terminated(name, "FINISHED" if record.end is not None and record.end[1] == 0 else "FAILED",
                          end_time=began + int(1000 * record.took()))
    return len(metrics), name


def export_command(arguments):
    parser = new_parser(prog="prun.py export",
                        description="Writes the metrics of a run, what was run, and its config for another tool.")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN", help=RUN_HELP)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--tensorboard", type=name_given, metavar="DIR", help="into a folder for TensorBoard (package tensorboardX)")
    to.add_argument("--mlflow", action="store_true", help="as a run of MLflow (package mlflow-skinny)")
    parser.add_argument("--tracking-uri", type=name_given, metavar="URI",
                        help="of MLflow: a server, or file:FOLDER (default: $MLFLOW_TRACKING_URI, or what MLflow takes)")
    parser.add_argument("--experiment", type=name_given, default=EXPERIMENT, metavar="NAME",
                        help=f"of MLflow (default {EXPERIMENT})")
    options = parser.parse_args(arguments)
    if options.tensorboard and options.tracking_uri:
        parser.error("--tracking-uri is for --mlflow")
    record = record_of(options.run)
    if not record.metrics and not record.results:
        raise Failure(USAGE, f"--run {options.run}: has recorded no metrics: its program writes no metrics.jsonl, and has "
                             "printed no results")
    try:
        if options.tensorboard:
            count, where = to_tensorboard(record, options.tensorboard), options.tensorboard
        else:
            count, name = to_mlflow(record, options.tracking_uri, options.experiment)
            where = f"run {name} of experiment {options.experiment}"
    except Failure:
        raise
    except Exception as error:  # of the package, the network, the disk
        raise Failure(FAILURE, f"{'--tensorboard' if options.tensorboard else '--mlflow'}: "
                               f"{words_of(error) or type(error).__name__}") from None
    note = ""
    if record.thinned and record.thinned[1]:
        note = f"; one of {count_of(record.thinned[1], 'round')} was kept"
    write_quietly(2, (printable(f"prun.py: wrote {count_of(count, 'value')} to {where}{note}") + "\n").encode("utf-8", "replace"))
    return OK
