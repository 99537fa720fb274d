#include "client/cli/upload_view.h"

#include <chrono>
#include <optional>

#include "client/lib/names.h"
#include "client/lib/weights_upload.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr double kRedrawSeconds = 0.1;

/// One line of a terminal, redrawn repeatedly and removed with the object.
class UploadLine {
 public:
  explicit UploadLine(Terminal& terminal) : terminal_(terminal) {}
  ~UploadLine() {
    if (drawn_) terminal_.write("\r\x1b[K");
  }
  UploadLine(const UploadLine&) = delete;
  UploadLine& operator=(const UploadLine&) = delete;

  /// None if nobody would see it.
  client::UploadObserver observer() {
    if (!terminal_.is_terminal()) return {};
    return [this](const client::UploadProgress& p) { show(p); };
  }
  void write(const std::string& text) {
    if (!terminal_.is_terminal()) return;
    drawn_ = true;
    terminal_.write("\r" + text + "\x1b[K");
  }

 private:
  void show(const client::UploadProgress& p) {
    const auto now = std::chrono::steady_clock::now();
    const bool done = p.sent_bytes == p.total_bytes;
    if (!done && std::chrono::duration<double>(now - last_).count() < kRedrawSeconds) return;
    last_ = now;
    write("uploading " + safe_text(p.filename) + "  " +
          std::to_string(p.sent_bytes * 100 / p.total_bytes) + "% of " +
          human_bytes(p.total_bytes));
  }

  Terminal& terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// Nothing if there is none with that ID yet.
std::optional<v1::Dataset> find_newest(client::Client& server, const std::string& id) {
  if (id.empty()) return std::nullopt;
  Result<v1::Dataset> newest = server.get_dataset(server.parent() + "/datasets/" + id);
  if (!newest.ok()) return std::nullopt;  // for other errors, the upload will report it
  return std::move(newest).value();
}

}  // namespace

Result<v1::Dataset> ensure_dataset_shown(Session& session, const v1::DatasetFile& file,
                                         const std::filesystem::path& folder, bool say_what_is) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::optional<v1::Dataset> before = find_newest(*server, file.name());
  const auto ensure = [&] {
    UploadLine line(session.err());
    client::DatasetObserver observer;
    observer.uploading = line.observer();
    observer.ingesting = [&](const v1::Dataset& dataset) {
      line.write("reading dataset " + safe_text(client::short_name(dataset.name())) + " ...");
    };
    return client::ensure_dataset(*server, file, folder, observer, session.interrupted());
  };
  ASSIGN_OR_RETURN(v1::Dataset dataset, ensure());
  const std::string name = safe_text(client::short_name(dataset.name()));
  if (before && before->version() != dataset.version()) {
    session.err().line(name + ": a new version, " + safe_text(client::short_name(before->name())) +
                       " stays");
  } else if (before && say_what_is) {
    session.err().line(name + ": the same content as before");
  }
  return dataset;
}

Result<v1::Model> ensure_weights_shown(Session& session, const std::filesystem::path& path,
                                       const std::string& name) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  UploadLine line(session.err());
  return client::ensure_weights(*server, path, name, line.observer(), session.interrupted());
}

Result<v1::JobSpec> bring_files_shown(Session& session, const client::SpecFile& spec) {
  v1::JobSpec travels = spec.job_spec();
  if (spec.has_data()) {
    ASSIGN_OR_RETURN(const v1::Dataset dataset,
                     ensure_dataset_shown(session, spec.file.dataset(), spec.folder));
    travels.mutable_dataset()->set_name(dataset.name());
  }
  if (spec.has_weights()) {
    v1::InitialWeights& weights = *travels.mutable_recipe()->mutable_initial_weights();
    ASSIGN_OR_RETURN(const v1::Model model, ensure_weights_shown(session, spec.weights_path(), ""));
    weights.clear_path();
    weights.set_model(std::string(client::short_name(model.name())));
  }
  return travels;
}

}  // namespace trainyard::cli
