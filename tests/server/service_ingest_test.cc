// Fails if a dataset becomes READY without files because its worker died while its outcome was on
// its way to the store.
#include <unistd.h>

#include "tests/server/fault_vfs.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

/// Delays every sync of the store by 0.5 s, longer than a worker takes to end after it has sent its
/// outcome.
class SlowStore {
 public:
  SlowStore() : usual_(sqlite3_vfs_find(nullptr)), slow_("slow") {
    sqlite3_vfs_register(sqlite3_vfs_find(slow_.name().c_str()), /*makeDflt=*/1);
    slow_.set_hook([](const FileOperation& operation) {
      if (operation.kind == FileOperation::Kind::kSync) ::usleep(500'000);
      return SQLITE_OK;
    });
  }
  ~SlowStore() { sqlite3_vfs_register(usual_, 1); }

 private:
  sqlite3_vfs* const usual_;
  FaultVfs slow_;
};

class ServiceIngest : public ServiceTest {
 protected:
  std::unique_ptr<SlowStore> slow_;  // outlives the daemon, which TearDown() ends
};

// Covers the faults F07, I1 and I6.
TEST_F(ServiceIngest, F07AWorkerThatDiesAfterItsOutcomeLosesNoDataset) {
  stop();
  slow_ = std::make_unique<SlowStore>();
  start();
  std::string rows = "a,dies_behind_its_outcome\n";
  for (int i = 0; i < 60; ++i) rows += std::to_string(i) + "," + "xy"[i % 2] + "\n";
  dataset_ = create_csv(rows, "iris", "dies_behind_its_outcome");
  wait_for_ingest();
  const std::string folder = config_.state_dir / "datasets" / dataset_.digest();
  for (int i = 0; i < 60; ++i) {  // meanwhile the daemon notices the end of the process
    ASSERT_EQ(get_dataset(dataset_.name()).state(), v1::Dataset::READY);
    ASSERT_TRUE(std::filesystem::exists(folder + "/schema.json")) << "after " << i * 10 << " ms";
    ::usleep(10'000);
  }
}

}  // namespace
}  // namespace trainyard::server
