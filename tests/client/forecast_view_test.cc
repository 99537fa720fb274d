// Tests of the text that shows forecasts to users.
#include "client/cli/forecast_view.h"

#include <gtest/gtest.h>

#include "client/cli/gpu_view.h"

namespace trainyard::cli {
namespace {

TEST(ForecastView, ATableOfDevicesWithTheirBasis) {
  v1::RunPlan plan;
  EXPECT_EQ(render_forecasts(plan, false), "");
  v1::Forecast& cpu = *plan.add_forecasts();
  cpu.set_device("devices/cpu");
  cpu.set_step_seconds(0.0123);
  cpu.set_total_seconds(100);
  cpu.set_total_seconds_low(90);
  cpu.set_total_seconds_high(115);
  cpu.set_limited_by("compute");
  cpu.set_rows_per_second_needed(5000);
  cpu.set_rows_per_second_possible(200'000);
  cpu.set_cost(0.25);
  cpu.set_energy_joules(7200);
  cpu.set_basis("speed measured with 2 threads");
  v1::Forecast& gpu = *plan.add_forecasts();
  gpu.set_device("devices/gpu-0");
  gpu.set_basis("unknown: the speed has not been measured yet");
  EXPECT_EQ(render_forecasts(plan, false),
            "FORECAST     STEP  TOTAL TIME             LIMITED BY        ROWS/S  COST\n"
            "cpu       12.3 ms  100 s (90 s to 115 s)  compute     5000 of 200k  0.25\n"
            "gpu-0     unknown\n"
            "cpu: forecast from speed measured with 2 threads, about 2 Wh\n"
            "gpu-0: unknown: the speed has not been measured yet\n");
}

TEST(ForecastView, GpusThatAreComparedWithTheirRangesAndAdvice) {
  v1::JobPlan plan;
  EXPECT_EQ(render_gpu_comparisons(plan, false, 0), "");
  v1::GpuComparison& l4 = *plan.add_gpu_comparisons();
  l4.set_gpu("l4");
  l4.set_bytes_needed(int64_t{3} << 30);
  l4.set_memory_bytes(int64_t{22} << 30);
  l4.set_step_seconds(0.01);
  l4.set_step_seconds_low(0.005);
  l4.set_step_seconds_high(0.04);
  l4.set_total_seconds(100);
  l4.set_total_seconds_low(60);
  l4.set_total_seconds_high(400);
  l4.set_speedup_low(1.5);
  l4.set_speedup_high(11);
  l4.set_cost_share_low(0.25);
  l4.set_cost_share_high(1.5);
  l4.set_verdict(v1::GpuComparison::PROBABLY_GPU);
  v1::GpuComparison& t4 = *plan.add_gpu_comparisons();
  t4.set_gpu("t4");
  t4.set_bytes_needed(int64_t{30} << 30);
  t4.set_memory_bytes(int64_t{15} << 30);
  t4.set_verdict(v1::GpuComparison::IMPOSSIBLE);
  t4.set_advice("Not there: the job needs 30 GiB.");
  plan.set_gpu_comparisons_basis("They are assumed.");
  EXPECT_EQ(
      render_gpu_comparisons(plan, false, 0),
      "GPU   NEEDS     HAS           STEP          TOTAL TIME       SPEED          COST  ADVICE\n"
      "l4    3 GiB  22 GiB  5 ms to 40 ms  60 s to 6 min 40 s  1.5 to 11x  0.25 to 1.5x  probably "
      "GPU\n"
      "t4   30 GiB  15 GiB                                                               not "
      "possible\n"
      "t4: Not there: the job needs 30 GiB.\n"
      "SPEED and COST are multiples of the CPU's. They are assumed.\n");
}

TEST(ForecastView, AClusterWithItsTimeLimit) {
  v1::RunPlan plan;
  v1::Forecast& cluster = *plan.add_forecasts();
  cluster.set_device("clusters/slurm");
  cluster.set_devices(4);
  cluster.set_step_seconds(0.0123);
  cluster.set_total_seconds(11'400);
  cluster.set_total_seconds_low(9'600);
  cluster.set_total_seconds_high(14'400);
  cluster.set_basis("speed measured with 2 threads on Fast CPU, 8 cores");
  cluster.set_time_limit_seconds(3600);
  cluster.set_starts(4);
  const auto text = [&] { return render_forecasts(plan, false); };
  EXPECT_NE(text().find("slurm x 4  12.3 ms  3 h 10 min (2 h 40 min to 4 h 0 min)"),
            std::string::npos)
      << text();
  EXPECT_NE(text().find("slurm x 4: its time limit of 1 h 0 min splits it into 4 starts; the "
                        "total time excludes the waits between them\n"),
            std::string::npos)
      << text();
  cluster.set_starts(1);
  EXPECT_NE(text().find("slurm x 4: within its time limit of 1 h 0 min\n"), std::string::npos)
      << text();
  cluster.set_starts(0);
  EXPECT_NE(text().find("leaves no time for steps"), std::string::npos) << text();
  cluster.set_time_limit_seconds(0);
  EXPECT_EQ(text().find("limit of"), std::string::npos) << text();
}

TEST(ForecastView, TheRemainingTimeOfARunningJob) {
  v1::Progress progress;
  EXPECT_EQ(remaining_text(progress), "");
  progress.set_remaining_seconds(100);
  progress.set_remaining_seconds_low(95);
  progress.set_remaining_seconds_high(110);
  EXPECT_EQ(remaining_text(progress), "100 s (95 s to 110 s)");
  progress.set_forecast_share(0.5);
  progress.set_held_back_by("data");
  EXPECT_EQ(remaining_text(progress),
            "100 s (95 s to 110 s), 0.5x as fast as forecast, held back by data");
  progress.set_bound_share(0.304);
  EXPECT_EQ(remaining_text(progress),
            "100 s (95 s to 110 s), 0.5x as fast as forecast, at 30% of the device's bound, "
            "held back by data");
}

TEST(ForecastView, ForecastsAndOutcomes) {
  v1::ListDevicesResponse list;
  v1::Device& cpu = *list.add_devices();
  cpu.set_name("devices/cpu");
  v1::DeviceForecasts& f = *cpu.mutable_forecasts();
  f.set_missing("the speed is measured once no job has run for 10 s");
  EXPECT_EQ(render_device_forecasts(list, false, "projects/default"),
            "cpu: no job with a forecast has finished; the speed is measured once no job has run "
            "for 10 s\n");
  f.clear_missing();
  f.set_jobs(1);
  f.set_error_median(0.05);
  f.set_error_p95(0.05);
  v1::ForecastOutcome& o = *f.add_newest();
  o.set_job("projects/default/jobs/digits-1");
  o.set_step_seconds(0.0105);
  o.set_step_seconds_measured(0.01);
  o.set_basis("speed measured with 2 threads");
  const std::string text = render_device_forecasts(list, false, "projects/default");
  EXPECT_NE(text.find("1 job, off by 5.0% (median), 5.0% (95th percentile)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("digits-1  cpu           10.5 ms     10 ms    5.0%"), std::string::npos)
      << text;

  v1::Cluster& cluster = *list.add_clusters();
  cluster.set_name("clusters/slurm");
  *cluster.mutable_forecasts() = f;
  cluster.mutable_forecasts()->mutable_newest(0)->set_job("projects/default/jobs/handed");
  v1::ClusterNode& node = *cluster.add_node_types();
  node.set_model("Fast CPU, 8 cores");
  node.set_memory_bytes(int64_t{64} << 30);
  node.add_rates()->set_threads(3);
  const std::string both = render_device_forecasts(list, false, "projects/default");
  EXPECT_NE(both.find("slurm: 1 job, off by 5.0% (median)"), std::string::npos) << both;
  EXPECT_NE(both.find("slurm    Fast CPU, 8 cores  64 GiB        3"), std::string::npos) << both;
  EXPECT_NE(both.find("handed    slurm         10.5 ms"), std::string::npos) << both;
}

}  // namespace
}  // namespace trainyard::cli
