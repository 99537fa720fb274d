// Simulates hours of a cluster with the daemon's own decisions, bookkeeping, supervisor and store:
// no job may be lost, each ends once, and the seed determines the result.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "tests/bench/schedule_sim/cluster_day.h"
#include "tests/server/store_support.h"

namespace trainyard::sim {
namespace {

ClusterDay simulate(ClusterDayOptions options) {
  const server::TemporaryDirectory folder;
  options.folder = folder.path() / "state";
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);
  ClusterDay day = simulate_cluster_day(options);
  spdlog::set_level(level);
  return day;
}

TEST(ClusterDay, NodesThatFailLoseNoJob) {
  ClusterDayOptions options;
  options.nodes = 20;
  options.hours = 6;
  options.jobs_per_node_day = 24;
  options.backlog = 10;
  options.node_mtbf_hours = 10;
  const ClusterDay day = simulate(options);
  for (const std::string& text : day.violations) ADD_FAILURE() << text;
  EXPECT_GT(day.succeeded, 50);
  EXPECT_GT(day.node_failures, 3);
  EXPECT_GE(day.attempts, day.succeeded + day.node_failures) << "each failure is an attempt more";
  EXPECT_GE(day.waiting_most, 10);
  EXPECT_LE(day.live_most, options.nodes + options.waiting_max + 20);
  // One scheduling pass every ten seconds, and one a second after each submission to the cluster.
  EXPECT_LE(day.queries, 6 * 360 + 2 * day.attempts + 10);
}

TEST(ClusterDay, TheSameSeedIsTheSameDay) {
  ClusterDayOptions options;
  options.nodes = 5;
  options.hours = 4;
  options.jobs_per_node_day = 24;
  options.node_mtbf_hours = 20;
  const ClusterDay one = simulate(options), two = simulate(options);
  EXPECT_EQ(one.submitted, two.submitted);
  EXPECT_EQ(one.attempts, two.attempts);
  EXPECT_EQ(one.succeeded, two.succeeded);
  EXPECT_EQ(one.node_failures, two.node_failures);
  options.seed = 2;
  EXPECT_NE(simulate(options).submitted, one.submitted);
}

}  // namespace
}  // namespace trainyard::sim
