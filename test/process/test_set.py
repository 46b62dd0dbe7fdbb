#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""--set and includes: a program reads the same config by itself, under prun.py, and from one file that has all keys."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, LR, JobTest, clean_environment, main  # noqa: E402


class Set(JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.mkdir(os.path.join(cls.folder, "b\u00e4se dir"))
        cls.write_config("b\u00e4se dir/base.json", alpha=5, rounds=7)
        cls.write("cfg2.json", {"include": "b\u00e4se dir/base.json", "alpha": 0.2})
        cls.write_config("whole.json", alpha=0.2, rounds=9, output="whole")

    @classmethod
    def write(cls, name, keys):
        with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as file:
            json.dump(keys, file, ensure_ascii=False)

    def alone(self, *arguments, program=LR):
        done = subprocess.run([program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=clean_environment(), timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    def theta(self, output):
        with open(os.path.join(self.folder, output, "lr_theta_0"), encoding="utf-8") as file:
            return file.read()

    def settings(self, output):
        with open(os.path.join(self.folder, output, "model.json"), encoding="utf-8") as file:
            return json.load(file)["settings"]

    def test_every_way_gives_the_model_of_one_file(self):
        self.assertEqual(self.alone("--cfg_file", "whole.json")[0], 0)
        self.assertEqual(self.alone("--cfg_file=cfg2.json", "--set", "rounds=9", "-set=output=by itself")[0], 0)
        self.assertEqual(self.prun("-c", "cfg2.json", "--set", "rounds=9", "--set=output=job", LR)[0], 0)
        self.assertEqual(self.prun(LR, "--set", "output=after", "--cfg_file", "cfg2.json", "--set=rounds=9")[0], 0)
        for output in ("by itself", "job", "after"):
            with self.subTest(output):
                self.assertEqual(self.theta(output), self.theta("whole"))
                self.assertEqual(self.settings(output)["rounds"], 9)

    def test_what_is_wrong_is_named_with_its_place_before_anything_starts(self):
        self.write("deep.json", {"include": "cfg2.json", "beta": -1})
        for arguments, words in (
                (("-c", "cfg2.json", "--set", "rounds=no"), '--set: key "rounds": found string "no", want an int'),
                (("-c", "cfg2.json", "--set", "round=3"), '--set: key "round" is unknown; did you mean "rounds"?'),
                (("-c", "deep.json"), 'deep.json:1:26: key "beta": found number -1'),
                (("-c", "deep.json", "--set", "beta=0", "--set", "beta=1"), '--set: key "beta" is given twice')):
            with self.subTest(arguments):
                for status, out, err in (self.prun(*arguments, LR), self.alone("--cfg_file", *arguments[1:])):
                    self.assertEqual((status, out), (3, ""), err)
                    self.assertIn(words, err)
                    self.assertNotIn("logs in", err)
                    self.assertEqual(len(err.splitlines()), 1)
        for text in ("rounds", "=3"):
            self.assert_refused(f"argument --set: found '{text}', want KEY=VALUE", "-c", "cfg2.json", "--set", text, LR)
            status, _, err = self.alone("--cfg_file", "cfg2.json", "--set", text)
            self.assertEqual((status, err), (2, f'lr: error: --set: found "{text}", want KEY=VALUE\n'))
        self.assertEqual(self.alone("--cfg_file", "cfg2.json", "--set")[0], 2)
        status, _, err = self.alone("--cfg_fiel", "cfg2.json")
        self.assertEqual((status, err), (2, "lr: error: unknown option --cfg_fiel: did you mean --cfg_file? See --help\n"))

    def test_a_program_that_reads_its_config_itself_does_not_take_it(self):
        program = os.path.join(BIN, "start_sandbox")  # linked with nothing: as a script
        self.assert_refused("--set rounds=3: no config file is given: want -c FILE", "--set", "rounds=3", program)
        self.assert_refused("start_server reads its config itself, without a schema: want the key in the config",
                            "-c", "cfg2.json", "--set", "rounds=3", os.path.join(BIN, "start_server"))

    def test_a_script_gets_it_and_the_servers_may_load_what_it_names(self):
        """The launcher does not know what a script means by its keys."""
        script = self.write_program("words", 'for word; do printf "%s\\n" "$word"; done')
        self.write("script.json", {"include": "b\u00e4se dir/base.json"})
        status, out, err = self.prun("-c", "script.json", "--set", "update_file=./plug/libmine.so", "--dry-run", script)
        self.assertEqual(status, 0, err)
        self.assertIn("--cfg_file script.json --set update_file=./plug/libmine.so", out)
        self.assertIn(os.path.join(os.path.realpath(self.folder), "plug") + ":", os.path.realpath(self.folder).join(
            out.split(self.folder)))


if __name__ == "__main__":
    main()
