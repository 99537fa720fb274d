"""Tests that rates are measured once, plans use them to forecast times, and finished jobs correct
later plans."""

import subprocess
import unittest

from harness import BIN, PATIENCE_S, DaemonTest, digits_spec, wait_until


class MeasuredTest(DaemonTest):
    arguments = ("--measure-after-seconds", "0", "--cpu-price-per-hour", "3.6")

    def plan(self):
        return self.daemon.json("plan", digits_spec(self.folder, "planned"), "--upload")["run"]

    def forecast(self):
        (forecast,) = self.plan()["forecasts"]
        self.assertEqual(forecast["device"], "devices/cpu")
        self.assertTrue(forecast["basis"])
        return forecast

    def known(self):
        forecast = self.forecast()
        return forecast if forecast["step_seconds"] > 0 else None


class ABatchSize(MeasuredTest):
    def test_the_batch_size_is_chosen_once(self):
        wait_until(self.known, "rates are measured", timeout_s=2 * PATIENCE_S, interval_s=0.5)
        spec = digits_spec(self.folder, "chosen", recipe="  checkpoint_every_steps: 10\n  epochs: 20\n")
        spec.write_text(spec.read_text().replace("batch_size: 50", "batch_size: auto").replace("  epochs: 3\n", ""))
        planned = self.daemon.json("plan", spec, "--upload")
        choice = planned["run"]["fit_choice"]
        self.assertRegex(choice["message"], r"^batch_size auto: \d+ rows, forecast [\d,]+ rows/s, .*best of those that fit")
        self.assertIn("The learning rate is not scaled", self.daemon.cli("plan", spec, "--upload").stdout.replace("\n", " "))
        rows = int(choice["batch_size"])
        self.assertEqual(rows & (rows - 1), 0, "a power of two")
        self.assertGreater(rows, 1)
        self.assertEqual(int(planned["run"]["steps_per_epoch"]), 1797 // rows)
        self.daemon.submit(spec, "--wait")
        self.assertEqual(self.daemon.job("chosen")["plan"]["fit_choice"]["message"], choice["message"])
        self.assertIn(f"batch_size: {rows}\n", self.daemon.cli("get", "chosen", "-o", "yaml").stdout)
        fork = self.daemon.json("fork", "chosen", "--name", "fork-of-it", "--set", "recipe.batch_size=auto",
                                "--set", "recipe.epochs=40", "--set", "resources.threads=1")
        self.assertEqual(int(fork["spec"]["recipe"]["batch_size"]), rows)
        self.daemon.cli("wait", "fork-of-it")


class Forecasts(MeasuredTest):
    def test_from_rates_to_outcomes(self):
        forecast = wait_until(self.known, "rates are measured", timeout_s=2 * PATIENCE_S, interval_s=0.5)
        self.assertIn("speed measured with", forecast["basis"])
        self.assertLess(forecast["step_seconds_low"], forecast["step_seconds"])
        self.assertLess(forecast["step_seconds"], forecast["step_seconds_high"])
        self.assertGreater(forecast["total_seconds"], 100 * forecast["step_seconds"])
        self.assertAlmostEqual(forecast["cost"], forecast["total_seconds"] / 1000, delta=1e-6)
        self.assertIn("On the CPU this takes", self.plan()["device_advice"])
        text = self.daemon.cli("plan", digits_spec(self.folder, "planned"), "--upload").stdout
        self.assertIn("TOTAL TIME", text)

        self.daemon.submit(digits_spec(self.folder, "measured"), "--wait")
        job = self.daemon.job("measured")
        self.assertEqual(job["plan"]["forecasts"][0]["step_seconds"], forecast["step_seconds"])
        times = job["progress"]["times"]
        self.assertGreaterEqual(int(times["steps"]), 100)
        self.assertGreater(times["step_seconds"], 0)
        (cpu,) = [d for d in self.daemon.json("device", "list", "--forecasts")["devices"] if d["kind"] == "CPU"]
        self.assertEqual(int(cpu["forecasts"]["jobs"]), 1)
        (outcome,) = cpu["forecasts"]["newest"]
        self.assertEqual(outcome["step_seconds_measured"], times["step_seconds"])
        self.assertIn("off by", self.daemon.cli("device", "list", "--forecasts").stdout)
        corrected = self.forecast()
        self.assertEqual(corrected["basis"], "1 finished job of this graph")
        self.assertEqual(corrected["step_seconds"], times["step_seconds"])

        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(self.forecast()["step_seconds"], times["step_seconds"])
        self.assertNotIn("rates_measurement_started", self.daemon.log_path.read_text().rsplit("event=daemon_started", 1)[1])

    def test_a_negative_price_is_refused(self):
        done = subprocess.run([BIN / "trainyardd", "--state-dir", str(self.daemon.state), "--gpu-price-per-hour=-1"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("gpu_price_per_hour", done.stderr)


if __name__ == "__main__":
    unittest.main()
