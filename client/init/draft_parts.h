// client/init/draft_parts.h: the drafts for each kind of data, and helpers that they share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "client/init/job_draft.h"
#include "client/init/sniff.h"
#include "src/base/grouped.h"
#include "src/data/schema.h"

namespace trainyard::init {

Result<JobDraft> draft_table(const std::filesystem::path& path, const Sniffed& sniffed,
                             const DraftOptions& options);
Result<JobDraft> draft_text(const std::filesystem::path& path);
Result<JobDraft> draft_text_files(const std::filesystem::path& path);
Result<JobDraft> draft_images(const std::filesystem::path& path);
Result<JobDraft> draft_cifar(const std::filesystem::path& path);
Result<JobDraft> draft_arrays(const std::filesystem::path& path, const std::string& target);
Result<JobDraft> draft_npy(const std::filesystem::path& path);
Result<JobDraft> draft_idx(const std::filesystem::path& path);
Result<JobDraft> draft_libsvm(const std::filesystem::path& path);

/// Returns the text as a YAML scalar: plain if that is safe, else quoted.
std::string yaml_text(std::string_view text);
/// Makes a text safe for a comment: one line, without characters that a spec may not contain.
std::string comment_text(std::string_view text);
/// Returns the path as a person would write it into `file`.
std::string path_in(const std::filesystem::path& path, const std::filesystem::path& file);
/// Returns the beginning of a long name, cut between two characters.
std::string shortened(std::string_view text);
/// Returns a YAML list: "[a, b]".
std::string yaml_list(const std::vector<std::string>& texts);
/// Returns the number with about four significant digits: 5.735, 512.3, 18823.
std::string few_digits(double value);
/// Returns "4.3 to 7.9", with all digits if fewer do not tell the two numbers apart.
std::string range_text(double low, double high);
/// Returns a text from the data in quotes, for a sentence: 'Müller'. The caller must escape it
/// before showing it.
std::string in_quotes(std::string_view text);
/// Returns a number with its noun: "1 row", "2 rows".
std::string count_of(int64_t count, const std::string& noun);

/// Sets the target's part of a draft and adds notes about it, from the data's schema and
/// statistics. `noun` is the name of a row, such as "image".
void describe_target(const DatasetSchema& schema, const DatasetStatistics& statistics,
                     const std::string& noun, JobDraft& draft);
/// Adds the fields that say how rows of text become tokens: words, or `subwords` for scripts
/// without spaces between words.
void add_token_fields(double words_mean, JobDraft& draft, bool subwords = false);

}  // namespace trainyard::init
