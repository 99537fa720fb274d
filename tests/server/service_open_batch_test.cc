// Fails if `auto` becomes a wrong batch_size, or if a fork does not keep its parent's.
#include "server/planning/open_batch.h"

#include <gtest/gtest.h>

namespace trainyard::server {
namespace {

TEST(OpenBatch, IsAMultipleOfMicroBatchesAndGpus) {
  v1::JobSpec spec;
  EXPECT_FALSE(batch_size_is_open(spec));
  spec.mutable_recipe()->set_batch_size(0);
  EXPECT_TRUE(batch_size_is_open(spec));
  EXPECT_EQ(batch_unit(spec), 1);
  spec.mutable_recipe()->set_accumulate_steps(4);
  spec.mutable_resources()->set_gpus(3);
  EXPECT_EQ(batch_unit(spec), 12);
  spec.mutable_recipe()->set_accumulate_steps(-1);
  spec.mutable_resources()->set_gpus(1 << 30);
  EXPECT_EQ(batch_unit(spec), 1) << "their own checks refuse them";
}

TEST(OpenBatch, AForkKeepsItsParentsNumber) {
  v1::JobSpec parent, fork;
  parent.mutable_recipe()->set_batch_size(16);
  fork.mutable_recipe()->set_batch_size(0);
  keep_batch_size(parent, fork);
  EXPECT_EQ(fork.recipe().batch_size(), 16);
  fork.mutable_recipe()->set_batch_size(8);
  keep_batch_size(parent, fork);
  EXPECT_EQ(fork.recipe().batch_size(), 8) << "what it names is its own";
  fork.mutable_recipe()->set_batch_size(0);
  parent.mutable_recipe()->clear_batch_size();
  keep_batch_size(parent, fork);
  EXPECT_FALSE(fork.recipe().has_batch_size()) << "the default";
}

}  // namespace
}  // namespace trainyard::server
