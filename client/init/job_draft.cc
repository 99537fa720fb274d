#include "client/init/job_draft.h"

#include "client/init/draft_parts.h"
#include "client/init/sniff.h"
#include "src/base/join.h"

namespace trainyard::init {

namespace {

Result<JobDraft> draft_sniffed(const std::filesystem::path& data, const Sniffed& sniffed,
                               const DraftOptions& options) {
  switch (sniffed.kind) {
    case DataKind::kTable:
    case DataKind::kJsonLines:
      return draft_table(data, sniffed, options);
    case DataKind::kLibsvm:
      return draft_libsvm(data);
    case DataKind::kText:
      return draft_text(data);
    case DataKind::kTextFiles:
      return draft_text_files(data);
    case DataKind::kImages:
      return draft_images(data);
    case DataKind::kCifar:
      return draft_cifar(data);
    case DataKind::kArrays:
      return draft_arrays(data, options.target);
    case DataKind::kNpy:
      return draft_npy(data);
    case DataKind::kIdx:
      return draft_idx(data);
  }
  return unsupported(data.string() + " is not data that Trainyard reads.");
}

}  // namespace

std::string choice_text(const JobDraft& draft) {
  if (draft.target_why.empty()) return "";
  std::vector<std::string> others;
  for (const std::string& name : draft.target_others) others.push_back(in_quotes(name));
  return draft.target_certainty + ": chosen " + draft.target_why +
         (others.empty() ? "" : "; next would be " + joined(others, ", "));
}

Result<JobDraft> draft_job(const std::filesystem::path& data, const DraftOptions& options) {
  ASSIGN_OR_RETURN(const Sniffed sniffed, sniff(data));
  const bool has_columns = sniffed.kind == DataKind::kTable || sniffed.kind == DataKind::kJsonLines;
  if (!options.target.empty() && !has_columns && sniffed.kind != DataKind::kArrays) {
    return make_error(
        ErrorCode::kInvalidArgument, "TARGET_UNKNOWN",
        "--target: names a column of a table, but " + data.string() + " is not a table; remove it");
  }
  Result<JobDraft> draft = draft_sniffed(data, sniffed, options);
  if (draft.ok() || draft.error().reason != "DATASET_INVALID") return draft;
  // The readers call the file by its role "data"; the message should have its path.
  Error error = draft.error();
  const std::string role = "data:";
  if (error.message.starts_with(role)) {
    error.message = data.string() + error.message.substr(role.size() - 1);
  }
  return error;
}

}  // namespace trainyard::init
