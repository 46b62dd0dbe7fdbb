# SPDX-License-Identifier: BSD-3-Clause
"""-m k8s: prints what starts a job in Kubernetes, and starts nothing itself. The scheduler, the servers and the workers are the
pods of three indexed Jobs, or of one JobSet. The first runs `prun.py -m external` with the options of this command, the others
`prun.py join` (external.py), by the scheduler's name, which a headless Service resolves. A Job replaces a pod that has failed by
another one of the same index; the scheduler decides whether that takes the place of the first.

    /data                  the volume: the working folder of all pods
    /paracel/checkpoints   its folder --checkpoint-dir
    /paracel/run           its folder paracel/NAME, with the logs of the scheduler, and what replaced workers leave to others
    /paracel/job.key       the Secret; a mount of the file itself, because a link is refused, as is a file that others may read
    /paracel/config/       the ConfigMap
"""
import os
import re

from ..common.exit_status import CONFIG, DATA, OK, PLUGIN, USAGE, Failure, words_of
from ..common.output import write_out, write_quietly
from ..programs.config import check_config
from ..programs.program import find_program, marks_in, own_folders
from .external import JOIN_LIMIT
from .yaml_text import Octal, yaml_text

BIN = "/usr/lib/paracel/bin"  # in the image, as the Debian packages have it
DATA_FOLDER, RUN, CHECKPOINTS, KEY, CONFIG_FOLDER = ("/data", "/paracel/run", "/paracel/checkpoints", "/paracel/job.key",
                                                     "/paracel/config")
PORT = 7400            # of the scheduler
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MOST_NAME = 40         # characters: with the role, an index and the controllers' suffixes a pod's name has 63 at most
MOST_CONFIG = 1000000  # bytes: a ConfigMap may have 1 MiB
RESOURCES = {"scheduler": ("1", "1G"), "server": ("1", "4G"), "worker": ("1", "4G")}
RESOURCE = re.compile(r"(?:(scheduler|server|worker)=)?([0-9]{1,4}(?:\.[0-9]{1,3})?):([0-9]{1,9}[MGT])")
BY_NAME, NO_PS, LOGS = ("pods find each other by name", "no programs for ps-lite are started",
                        "the logs are in the volume, and kubectl logs has them")
WITHOUT_MEANING = {  # option: why
    "ppn": "Kubernetes chooses the hosts", "host": BY_NAME, "bind_interface": BY_NAME, "rendezvous": BY_NAME,
    "insecure": "jobs are encrypted", "ps": NO_PS, "customers": NO_PS, "run_dir": LOGS, "output_dir": LOGS,
    "dry_run": "nothing is started", "resume": "a job resumes from the newest checkpoint in --checkpoint-dir by itself",
}
OWN = {"image", "jobset", "name", "volume", "resources", "method", "m_server", "cfg_file", "checkpoint_dir", "max_restarts",
       "timeout", "resume_newest", "encrypt"}  # what the scheduler's pod is not given as it stands


def check_options(parser, options, words):
    """Of -m k8s, while the command line is parsed. `options.kept`: what is said to the scheduler's pod."""
    if options.m_server != options.method:
        parser.error(f"-m {options.method} --m_server {options.m_server}: k8s is for servers and workers alike")
    if not options.image:
        parser.error("-m k8s requires --image IMAGE")
    for name, why in WITHOUT_MEANING.items():
        if getattr(options, name) != parser.get_default(name):
            action = next(a for a in parser._actions if a.dest == name)
            parser.error(f"{action.option_strings[-1]}: with -m k8s {why}")
    if options.on_worker_death == "eject":
        parser.error("--on-worker-death eject: with -m k8s nobody reports that a worker is dead: want abort or wait:T")
    if options.name and (not NAME.fullmatch(options.name) or len(options.name) > MOST_NAME):
        parser.error(f"--name {options.name}: want at most {MOST_NAME} lower-case letters, digits and dashes, a letter first, "
                     "no dash last")
    if options.volume and (not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", options.volume) or len(options.volume) > 253):
        parser.error(f"--volume {options.volume}: want the name of a PersistentVolumeClaim")
    folder = options.checkpoint_dir
    if folder and (folder.startswith("/") or ".." in folder.split("/")):
        parser.error(f"--checkpoint-dir {folder}: with -m k8s a folder of the volume: want a relative path without ..")
    if not re.fullmatch(r"[!-~]+", options.image):
        parser.error(f"--image {options.image!r}: want the name of an image")
    options.kept = kept_words(parser, words)


def kept_words(parser, words):
    """The options of a command line, up to its program, that the scheduler's pod is given, too."""
    kept, at = [], 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        name, equals, value = words[at].partition("=")
        if not name.startswith("--") and len(name) > 2:  # -w4
            name, equals, value = words[at][:2], "=", words[at][2:].removeprefix("=")
        action = parser._option_string_actions[name]
        if action.nargs == 0:
            found = [name]
        else:
            found = [name, value if equals else words[at + 1]]
            at += not equals
        kept += found if action.dest not in OWN else []
        at += 1
    return kept


def resources(text):
    """The type of --resources: (role or None for servers and workers, processors, memory)"""
    found = RESOURCE.fullmatch(text)
    if not found or not float(found[2]) or not int(found[3][:-1]):
        import argparse
        raise argparse.ArgumentTypeError(f"{text!r}: want CPUS:MEMORY, such as 4:8G, or server=4:8G for one role")
    return found[1], found[2], found[3]


class Manifests:
    def __init__(self, options, program, id, name, config):
        """`program`: its path in the image. `id`: 16 hex digits. `config`: a text, or None."""
        self.options, self.program, self.id, self.name, self.config = options, program, id, name, config

    def labels(self, role=None):
        labels = {"app.kubernetes.io/name": "paracel", "app.kubernetes.io/instance": self.name}
        return {**labels, "app.kubernetes.io/component": role} if role else labels

    def metadata(self, name=None, role=None):
        return {"name": name or self.name, "labels": self.labels(role)}

    def scheduler_host(self):
        """The pod's name, in the Service's. A JobSet numbers its Jobs, too."""
        return f"{self.name}-scheduler-0{'-0' if self.options.jobset else ''}.{self.name}"

    def rendezvous(self):
        return f"{self.scheduler_host()}:{PORT}#{self.id}"

    def command(self, role):
        o = self.options
        if role != "scheduler":
            return [BIN + "/prun.py", "join", *(["--log-format", "json"] if o.log_format == "json" else []), role]
        words = [BIN + "/prun.py", *o.kept, "-m", "external", "--rendezvous", self.rendezvous(), "--output-dir", RUN]
        if o.checkpoint_dir:
            words += ["--checkpoint-dir", CHECKPOINTS, "--resume-newest"]
        if self.config is not None:
            words += ["-c", CONFIG_FOLDER + "/config.json"]
        return [*words, self.program, *o.arguments]

    def size(self, role):
        cpus, memory = RESOURCES[role]
        for of, *given in self.options.resources:
            if of == role or of is None and role != "scheduler":
                cpus, memory = given
        return {"cpu": cpus, "memory": f"{memory}i"}

    def key(self):
        return {"apiVersion": "v1", "kind": "Secret", "metadata": self.metadata(), "type": "Opaque", "immutable": True,
                "stringData": {"job.key": os.urandom(32).hex()}}

    def config_map(self):
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.metadata(), "immutable": True,
                "data": {"config.json": self.config}}

    def claim(self):
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": self.metadata(),
                "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}}

    def service(self):
        """Names of pods that are not ready yet resolve, too: they are ready when they have found each other."""
        return {"apiVersion": "v1", "kind": "Service", "metadata": self.metadata(),
                "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self.labels(),
                         "ports": [{"name": "scheduler", "port": PORT}]}}

    def mounts(self):
        data = {"name": "data", "mountPath": DATA_FOLDER}
        mounts = [data, {**data, "mountPath": RUN, "subPath": f"paracel/{self.name}"}]
        if self.options.checkpoint_dir:
            mounts.append({**data, "mountPath": CHECKPOINTS, "subPath": os.path.normpath(self.options.checkpoint_dir)})
        mounts.append({"name": "key", "mountPath": KEY, "subPath": "job.key", "readOnly": True})
        if self.config is not None:
            mounts.append({"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True})
        return mounts

    def volumes(self):
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": self.options.volume or self.name}},
                   {"name": "key", "secret": {"secretName": self.name, "defaultMode": Octal(0o400)}}]
        return volumes + ([{"name": "config", "configMap": {"name": self.name}}] if self.config is not None else [])

    def probes(self, role):
        """What asks the scheduler sends nothing that others could read. Servers and workers end by themselves when they do not
        hear it; one that hangs does neither, and no pod takes its place before its own has ended. So it lives as long as the
        scheduler hears it. Nobody asks whether it is ready: no Service chooses among them."""
        if role != "scheduler":
            ask = {"exec": {"command": [BIN + "/prun.py", "join", role, "--alive"]}, "timeoutSeconds": 15}
            return {"startupProbe": {**ask, "periodSeconds": 5,
                                     "failureThreshold": round(max(JOIN_LIMIT, self.options.join_timeout) + 60) // 5},
                    "livenessProbe": {**ask, "periodSeconds": 30, "failureThreshold": 4}}
        ask = {"exec": {"command": [BIN + "/send_request", "--rendezvous", f"tcp://127.0.0.1:{PORT}", "--job", self.id, "--verb",
                                    "ping", "--timeout", "3"]}, "timeoutSeconds": 5}
        return {"startupProbe": {**ask, "periodSeconds": 2, "failureThreshold": 60},
                "readinessProbe": {**ask, "periodSeconds": 10},
                "livenessProbe": {**ask, "periodSeconds": 20, "failureThreshold": 6}}

    def container(self, role):
        variables = {"PARACEL_RENDEZVOUS": self.rendezvous(), "PARACEL_JOB_KEY_FILE": KEY}
        return {"name": role, "image": self.options.image,
                "command": [word.replace("$", "$$") for word in self.command(role)],  # the kubelet replaces $(NAME)
                "env": [{"name": name, "value": value} for name, value in variables.items()], "workingDir": DATA_FOLDER,
                "resources": {"requests": self.size(role), "limits": self.size(role)}, "volumeMounts": self.mounts(),
                **self.probes(role),
                "securityContext": {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}}}

    def pod(self, role):
        spec = {"restartPolicy": "Never", "subdomain": self.name, "automountServiceAccountToken": False,
                "enableServiceLinks": False, "shareProcessNamespace": True}  # process 1 of a namespace ignores signals
        if self.options.jobset:
            del spec["subdomain"]  # it sets that itself
        if role == "server" and self.options.replicas > 1:
            spec["topologySpreadConstraints"] = [{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": self.labels(role)}}]
        spec.update(containers=[self.container(role)], volumes=self.volumes())
        return {"metadata": {"labels": self.labels(role)}, "spec": spec}

    def job(self, role):
        """The spec of a Job. Another pod would find the same wrong config or data, so there is none for these statuses; nor does
        a pod count that a node has lost."""
        count = {"scheduler": 1, "server": self.options.snum, "worker": self.options.wnum}[role]
        spec = {"completionMode": "Indexed", "completions": count, "parallelism": count,
                "backoffLimitPerIndex": self.options.max_restarts, "maxFailedIndexes": 0, "podReplacementPolicy": "Failed",
                "podFailurePolicy": {"rules": [
                    {"action": "FailJob", "onExitCodes": {"containerName": role, "operator": "In",
                                                          "values": [USAGE, CONFIG, DATA, PLUGIN]}},
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}}
        if self.options.timeout is not None:
            spec["activeDeadlineSeconds"] = max(1, round(self.options.timeout))
        return {**spec, "template": self.pod(role)}

    def jobs(self):
        specs = {role: self.job(role) for role in RESOURCES}
        if not self.options.jobset:
            return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": self.metadata(f"{self.name}-{role}", role),
                     "spec": spec} for role, spec in specs.items()]
        return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": self.metadata(), "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": self.name, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["scheduler"]},
            "failurePolicy": {"maxRestarts": self.options.max_restarts, "rules": [
                {"name": "refused", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]},
            "replicatedJobs": [{"name": role, "replicas": 1, "template": {"spec": spec}} for role, spec in specs.items()]}}]

    def all(self):
        parts = [self.key()] + ([self.config_map()] if self.config is not None else [])
        parts += ([] if self.options.volume else [self.claim()]) + ([] if self.options.jobset else [self.service()])
        return parts + self.jobs()


def read_config(path, including=()):
    """The text of a config. One that includes others becomes one text. Raises Failure."""
    import json
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        config = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(CONFIG, f"{path}: {words_of(error)}") from None
    except ValueError as error:
        raise Failure(CONFIG, f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise Failure(CONFIG, f"{path}: want a JSON object")
    if "include" not in config:
        return text
    if os.path.realpath(path) in including:
        raise Failure(CONFIG, f"{path}: it includes itself")
    names = config.pop("include")
    merged = {}
    for name in [names] if isinstance(names, str) else names:
        merged.update(json.loads(read_config(os.path.join(os.path.dirname(path), name), (*including, os.path.realpath(path)))))
    return json.dumps({**merged, **config}, indent=1, ensure_ascii=False) + "\n"


def program_in_image(given):
    """(the program's path in the image, the same program here or None). Raises Failure."""
    folders = [os.path.dirname(os.path.realpath(given))] if os.sep in given else own_folders()
    for folder in folders:
        here = os.path.join(folder, os.path.basename(given))
        if all(os.access(path, os.X_OK) for path in (here, os.path.join(folder, "start_scheduler"))):
            return os.path.join(BIN, os.path.basename(given)), find_program(here)
    if given.startswith("/"):
        return given, None
    raise Failure(USAGE, f"{given}: want the program's path in the image, beginning with /, or the name of one of the "
                         "framework's")


def check_facts(options, here):
    """Asks the program about the config, if it is here. Raises Failure."""
    publishes, linked, _ = marks_in(here)
    facts = check_config(os.path.dirname(here), here, publishes, linked, options, check_files=False)
    if facts.standard_input:
        raise Failure(USAGE, f"{facts.standard_input}: a pod has no standard input: want a file of the volume")
    if options.worker_wait and not facts.resumable:
        raise Failure(USAGE, f"--on-worker-death {options.on_worker_death}: no process can replace a worker of {facts.program}")


def manifests_command(options):
    """Prints the manifests. Raises Failure."""
    program, here = program_in_image(options.program)
    if here is not None:
        check_facts(options, here)
    config = read_config(options.cfg_file) if options.cfg_file else None
    if config is not None and len(config.encode()) > MOST_CONFIG:
        raise Failure(CONFIG, f"{options.cfg_file}: {len(config.encode())} bytes; a ConfigMap may have {MOST_CONFIG}")
    job = os.urandom(8).hex()
    base = re.sub(r"[^a-z0-9]+", "-", os.path.basename(program).lower().removesuffix(".py")).strip("-")
    name = options.name or f"paracel-{base[:MOST_NAME - 15]}".rstrip("-") + f"-{job[:6]}"
    write_out(yaml_text(Manifests(options, program, job, name, config).all()))
    write_quietly(2, f"prun: job {name}: kubectl apply -f FILE starts it. Keep the file from others: it has the job's key\n"
                  .encode())
    return OK
