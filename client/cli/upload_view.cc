#include "client/cli/upload_view.h"

#include <chrono>

#include "client/lib/names.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {
constexpr double kRedrawSeconds = 0.1;
}

Result<v1::Dataset> ensure_dataset_shown(Session& session, const v1::DatasetFile& file,
                                         const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  Terminal& err = session.err();
  bool drawn = false;
  auto last = std::chrono::steady_clock::time_point();
  client::DatasetObserver observer;
  if (err.is_terminal()) {
    observer.uploading = [&](const client::UploadProgress& p) {
      const auto now = std::chrono::steady_clock::now();
      const bool done = p.sent_bytes == p.total_bytes;
      if (!done && std::chrono::duration<double>(now - last).count() < kRedrawSeconds) return;
      last = now;
      drawn = true;
      err.write("\ruploading " + safe_text(p.filename) + "  " +
                std::to_string(p.sent_bytes * 100 / p.total_bytes) + "% of " +
                human_bytes(p.total_bytes) + "\x1b[K");
    };
    observer.ingesting = [&](const v1::Dataset& dataset) {
      drawn = true;
      err.write("\rreading dataset " + safe_text(client::short_name(dataset.name())) +
                " ...\x1b[K");
    };
  }
  auto dataset = client::ensure_dataset(*server, file, folder, observer, session.interrupted());
  if (drawn) err.write("\r\x1b[K");
  return dataset;
}

}  // namespace trainyard::cli
