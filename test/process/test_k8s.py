#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What prun.py -m k8s prints: judged by kubernetes-validate (PyPI) and by the definition of a JobSet (its Go module), which
tool/setup.sh --test gets."""
import glob
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, BUILD, LR, PRUN, JobTest, clean_environment, main  # noqa: E402

TOOLS = os.path.join(BUILD, "python-tools")
sys.path += glob.glob(os.path.join(TOOLS, "lib", "python3.*", "site-packages"))
try:
    import kubernetes_validate
    import yaml
except ImportError:
    kubernetes_validate = None
JOBSET = os.path.join(TOOLS, "jobset.yaml")
VERSIONS = ("1.29", "1.31", "1.34", "1.37")
IMAGE = "registry.example/paracel:1"
KINDS = ["Secret", "ConfigMap", "PersistentVolumeClaim", "Service", "Job", "Job", "Job"]

sys.path.insert(0, os.path.join(os.path.dirname(PRUN), "tool"))
from launcher.engines.yaml_text import yaml_text  # noqa: E402


def strict(schema):
    """A CRD's schema as one that refuses what Kubernetes would drop without a word."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes-validations")}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


@unittest.skipIf(kubernetes_validate is None, "no kubernetes-validate: tool/setup.sh --test installs it")
class Manifests(JobTest):
    def manifests(self, *options, program=LR, config="cfg.json"):
        status, out, err = self.prun("-m", "k8s", "--image", IMAGE, *(("-c", config) if config else ()), *options, program)
        self.assertEqual(status, 0, err)
        self.assertRegex(err, r"\Aprun: job \S+: kubectl apply -f FILE starts it\. Keep the file from others: .*\n\Z")
        found = list(yaml.safe_load_all(out))
        for one in found:
            for version in VERSIONS if one["kind"] != "JobSet" else ():
                kubernetes_validate.validate(one, version, strict=True)
        return found

    def refused(self, *words):
        status, out, err = self.prun("-m", "k8s", *words)
        self.assertEqual(out, "")
        self.assertNotIn("Traceback", err)
        return status, err

    def pods(self, found):
        """{role: (spec of its Job, its pod's spec)}"""
        specs = [one["spec"] for one in found if one["kind"] == "Job"]
        for one in found:
            if one["kind"] == "JobSet":
                specs += [job["template"]["spec"] for job in one["spec"]["replicatedJobs"]]
        return {spec["template"]["spec"]["containers"][0]["name"]: (spec, spec["template"]["spec"]) for spec in specs}

    def test_they_are_valid_and_belong_together(self):
        found = self.manifests("-w", "4", "-p", "2", "--name", "trial", "--timeout", "60", "--max-restarts", "5", "--resources",
                               "2:8G", "--resources", "worker=0.5:1G")
        self.assertEqual([one["kind"] for one in found], KINDS)
        secret, config, claim, service = found[:4]
        self.assertRegex(secret["stringData"]["job.key"], r"\A[0-9a-f]{64}\Z")
        with open(os.path.join(self.folder, "cfg.json"), encoding="utf-8") as file:
            self.assertEqual(config["data"]["config.json"], file.read())
        self.assertEqual(service["spec"]["clusterIP"], "None")
        pods = self.pods(found)
        self.assertEqual({role: spec["completions"] for role, (spec, _) in pods.items()},
                         {"scheduler": 1, "server": 2, "worker": 4})
        for role, (spec, pod) in pods.items():
            self.assertEqual((spec["podReplacementPolicy"], spec["backoffLimitPerIndex"], spec["activeDeadlineSeconds"],
                              pod["restartPolicy"]), ("Failed", 5, 60, "Never"))
            # The Service finds the pods, which are named in its domain.
            self.assertLessEqual(service["spec"]["selector"].items(), spec["template"]["metadata"]["labels"].items())
            self.assertEqual(pod["subdomain"], service["metadata"]["name"])
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            self.assertEqual(volumes["key"]["secret"], {"secretName": secret["metadata"]["name"], "defaultMode": 0o400})
            self.assertEqual(volumes["data"]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])
            self.assertEqual(volumes["config"]["configMap"]["name"], config["metadata"]["name"])
            container, = pod["containers"]
            self.assertEqual(container["image"], IMAGE)
            self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, set(volumes))
            key, = (mount for mount in container["volumeMounts"] if mount["name"] == "key")
            self.assertEqual(key["subPath"], "job.key")  # otherwise it is a symbolic link, which is refused
            self.assertIn({"name": "PARACEL_JOB_KEY_FILE", "value": key["mountPath"]}, container["env"])
            rule, = (r["onExitCodes"] for r in spec["podFailurePolicy"]["rules"] if "onExitCodes" in r)
            self.assertEqual((rule["containerName"], rule["values"]), (container["name"], [2, 3, 4, 5]))
            self.assertEqual(container["resources"]["limits"], {
                "scheduler": {"cpu": "1", "memory": "1Gi"}, "server": {"cpu": "2", "memory": "8Gi"},
                "worker": {"cpu": "0.5", "memory": "1Gi"}}[role])
        self.assertEqual(set(pods["scheduler"][1]["containers"][0]) & {"startupProbe", "readinessProbe", "livenessProbe"},
                         {"startupProbe", "readinessProbe", "livenessProbe"})
        for role in ("server", "worker"):
            container, = pods[role][1]["containers"]
            probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
            self.assertEqual(set(probes), {"startupProbe", "livenessProbe"})
            for probe in probes.values():
                self.assertEqual(probe["exec"]["command"][1:], ["join", role, "--alive"])
            # A pod waits ten minutes for the others.
            self.assertGreater(probes["startupProbe"]["failureThreshold"] * probes["startupProbe"]["periodSeconds"], 600)
        # The others are told the name that the first pod of the scheduler's Job has.
        self.assertEqual(found[4]["metadata"]["name"], "trial-scheduler")
        for role in ("server", "worker"):
            self.assertIn("trial-scheduler-0.trial:7400", json.dumps(pods[role][1]["containers"][0]))

    def test_each_job_has_a_key_a_number_and_a_name_of_its_own(self):
        one, other = (self.manifests() for _ in range(2))
        self.assertNotEqual(one[0]["metadata"]["name"], other[0]["metadata"]["name"])
        self.assertNotEqual(one[0]["stringData"], other[0]["stringData"])
        key = one[0]["stringData"]["job.key"]
        self.assertNotIn(key, json.dumps(one[1:]))

    @unittest.skipUnless(os.path.exists(JOBSET), "no definition of a JobSet: tool/setup.sh --test gets it")
    def test_a_jobset_has_the_same_pods(self):
        import jsonschema
        with open(JOBSET, encoding="utf-8") as file:
            versions = yaml.safe_load(file)["spec"]["versions"]
        definition, = (strict(v["schema"]["openAPIV3Schema"]) for v in versions if v["name"] == "v1alpha2")
        options = ("-w", "3", "-p", "2", "--replicas", "2", "--name", "trial", "--checkpoint-dir", "ckpt")
        found = self.manifests("--jobset", *options)
        self.assertEqual([one["kind"] for one in found], ["Secret", "ConfigMap", "PersistentVolumeClaim", "JobSet"])
        jobset = found[-1]
        definition["properties"]["metadata"] = {"type": "object"}
        jsonschema.Draft7Validator(definition).validate(jobset)
        broken = json.loads(json.dumps(jobset))
        broken["spec"]["replicatedJobs"][0]["template"]["spec"]["completion"] = 1
        self.assertFalse(jsonschema.Draft7Validator(definition).is_valid(broken))  # the definition does judge
        self.assertEqual(jobset["apiVersion"], "jobset.x-k8s.io/v1alpha2")
        self.assertEqual(jobset["spec"]["network"]["subdomain"], "trial")
        text = json.dumps(jobset)
        self.assertIn("trial-scheduler-0-0.trial:7400", text)
        # As Jobs they are judged with all that kubernetes-validate knows of them.
        ours = self.pods(self.manifests(*options))
        for role, (spec, pod) in self.pods(found).items():
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": role}, "spec": spec}
            kubernetes_validate.validate(job, VERSIONS[-1], strict=True)
            self.assertEqual({**spec, "template": ""}, {**ours[role][0], "template": ""})
            self.assertEqual({**pod, "containers": 0, "subdomain": 0}, {**ours[role][1], "containers": 0, "subdomain": 0})

    def test_names_fit_where_they_are_used(self):
        for options in (("-w", "65536", "-p", "4096", "--name", "a" * 40), ("-w", "65536", "--name", "a" * 40, "--jobset")):
            found = self.manifests(*options)
            for one in found:
                self.assertRegex(one["metadata"]["name"], r"\A[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
            longest = found[-1]["metadata"]["name"] + ("-worker-0" if "--jobset" in options else "")
            self.assertLessEqual(len(longest + "-65535-xxxxx"), 63)
        for name in ("a" * 41, "A", "1a", "a-", "a.b", "ä", "a b"):
            status, err = self.refused("--image", IMAGE, "--name=" + name, LR)
            self.assertEqual(status, 2)
            self.assertIn("want at most 40 lower-case letters", err)

    def test_what_the_pods_run(self):
        found = self.manifests("--heartbeat-limit", "3", "-w2", "-p=3", "--set", "rounds=7", "--replicas=2",
                               "--on-worker-death", "wait:90", "-v", "--checkpoint-dir", "my/ckpt", "--checkpoint-every", "3",
                               "--name", "trial", "--timeout", "9")
        pods = {role: pod["containers"][0] for role, (_, pod) in self.pods(found).items()}
        command = pods["scheduler"]["command"]
        prun = "/usr/lib/paracel/bin/prun.py"
        where = command[command.index("--rendezvous") + 1]
        self.assertRegex(where, r"\Atrial-scheduler-0\.trial:7400#[0-9a-f]{16}\Z")
        self.assertEqual(command, [
            prun, "--heartbeat-limit", "3", "-w", "2", "-p", "3", "--set", "rounds=7", "--replicas", "2",
            "--on-worker-death", "wait:90", "-v", "--checkpoint-every", "3", "-m", "external", "--rendezvous", where,
            "--output-dir", "/paracel/run",
            "--checkpoint-dir", "/paracel/checkpoints", "--resume-newest", "-c", "/paracel/config/config.json",
            "/usr/lib/paracel/bin/lr"])
        here = {"/paracel/config/config.json": "cfg.json", "/usr/lib/paracel/bin/lr": LR}
        status, _, err = self.prun("--dry-run", *(here.get(word, word) for word in command[1:]))  # it takes what it is given
        self.assertEqual((status, err), (0, ""))
        self.assertEqual([pods[role]["command"] for role in ("server", "worker")],
                         [[prun, "join", "server"], [prun, "join", "worker"]])
        for container in pods.values():
            self.assertIn({"name": "PARACEL_RENDEZVOUS", "value": where}, container["env"])
        self.assertIn({"name": "data", "mountPath": "/paracel/checkpoints", "subPath": "my/ckpt"},
                      pods["scheduler"]["volumeMounts"])
        self.assertIn(where[-16:], pods["scheduler"]["livenessProbe"]["exec"]["command"])

    def test_a_dollar_of_an_argument_is_not_a_variable_of_the_pod(self):
        words = ("$(HOME) a", "ä: #\n- ☃\U0001f600\x85")
        status, out, err = self.prun("-m", "k8s", "--image", IMAGE, "--volume", "mine", "/opt/mine", *words)
        self.assertEqual(status, 0, err)
        found = list(yaml.safe_load_all(out))
        self.assertEqual([one["kind"] for one in found], ["Secret", "Service", "Job", "Job", "Job"])
        self.assertEqual(found[2]["spec"]["template"]["spec"]["containers"][0]["command"][-3:],
                         ["/opt/mine", "$" + words[0], words[1]])

    def test_a_config_that_includes_others_becomes_one(self):
        self.write_config("base.json")
        with open(os.path.join(self.folder, "short.json"), "w", encoding="utf-8") as file:
            json.dump({"include": "base.json", "rounds": 3}, file)
        config = self.manifests(config="short.json")[1]["data"]["config.json"]
        with open(os.path.join(self.folder, "base.json"), encoding="utf-8") as file:
            self.assertEqual(json.loads(config), {**json.load(file), "rounds": 3})

    def test_what_is_refused(self):
        with open(os.path.join(self.folder, "huge.json"), "w", encoding="utf-8") as file:
            json.dump({"a": "x" * 1000000}, file)
        self.write_config("reads.json", training_input="-")
        self.write_config("wrong.json", alpha="x")
        for words, want in (((LR,), "-m k8s requires --image"), (("--image", "", LR), "requires --image"),
                            (("--image", "a b", LR), "want the name of an image"),
                            (("--image", IMAGE, "build/mine"), "want the program's path in the image"),
                            (("--image", IMAGE, "--m_server", "local", LR), "for servers and workers alike"),
                            (("--image", IMAGE, "--insecure", LR), "--insecure: with -m k8s jobs are encrypted"),
                            (("--image", IMAGE, "--hostfile", "cfg.json", LR), "--hostfile requires -m mpi or ssh"),
                            (("--image", IMAGE, "--bind-interface", "lo", LR), "--bind-interface: with -m k8s pods"),
                            (("--image", IMAGE, "--output-dir", "x", LR), "--output-dir: with -m k8s the logs are in the volume"),
                            (("--image", IMAGE, "--resume", "x", LR), "resumes from the newest checkpoint"),
                            (("--image", IMAGE, "--on-worker-death", "eject", LR), "want abort or wait:T"),
                            (("--image", IMAGE, "--checkpoint-dir", "/x", LR), "a folder of the volume"),
                            (("--image", IMAGE, "--checkpoint-dir", "a/../..", LR), "a folder of the volume"),
                            (("--image", IMAGE, "--volume", "A b", LR), "want the name of a PersistentVolumeClaim"),
                            (("--image", IMAGE, "--resources", "0:1G", LR), "want CPUS:MEMORY"),
                            (("--image", IMAGE, "--resources", "robot=1:1G", LR), "want CPUS:MEMORY"),
                            (("--image", IMAGE, "-c", "reads.json", LR), "a pod has no standard input"),
                            (("--image", IMAGE, "-c", "wrong.json", LR), 'key "alpha"'),
                            (("--image", IMAGE, "-c", "no.json", LR), "no.json"),
                            (("--image", IMAGE, "-c", "huge.json", "/opt/mine"), "a ConfigMap may have 1000000")):
            status, err = self.refused(*words)
            self.assertIn(want, err)
            self.assertIn(status, (2, 3), err)
        self.assert_refused("require -m k8s", "--image", IMAGE, LR)

    def test_it_needs_nothing_but_python(self):
        done = subprocess.run(["/usr/bin/python3", "-S", "-I", PRUN, "-m", "k8s", "--image", IMAGE, "-c", "cfg.json",
                               "lr"], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=self.folder,
                              env=clean_environment(PARACEL_FRAMEWORK=BIN))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_texts_arrive_as_they_are(self):
        texts = ["", " ", "a", "yes", "No", "null", "~", "1", "0x1", "1e3", "-", "- a", "a: b", "a:b", "a #b", "#a", "'", '"',
                 "\\", "2026-01-01",
                 "a\nb", "a\nb\n", "a\n\n", "\na\n", " a\nb\n", "a\n b\n", "a\tb\n", "\ta\n", "a\r\nb\n", "\x00", "\x7f", "\x85",
                 "\u2028", "\ufeff", "\U0001f600\n", "ä\nö\n", "[a]", "{a}", "*a", "&a", "!a", "%a", "@a", "`a", "|", ">", "?",
                 "12:30", "a:", "a:b:c", ":a", "a\n#b\n", "---\n", "...\n", "a\n---\nb\n", "<<", "=", "0o7", "1_000", ".5",
                 ".inf"]
        documents = [{"all": texts, "by": [{"key": text, "nested": {text: [text]}} for text in texts], "none": [], "empty": {},
                      "number": 3, "is": True}]
        self.assertEqual(list(yaml.safe_load_all(yaml_text(documents))), documents)


if __name__ == "__main__":
    main()
