// proto/spec/read.h: converts documents to the messages that people write: jobs, datasets, models,
// arrays.
//
// Each function adds all faults to `problems`; its message is then incomplete. The functions check
// what follows from the text alone; the server checks everything else.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "proto/spec/document.h"
#include "trainyard/v1/job_spec.pb.h"
#include "trainyard/v1/spec_file.pb.h"

namespace trainyard::spec {

/// Parses a text, then applies `sets` (path=value) and `grids` (path=[values]).
Document read_document(std::string_view text, std::string name, std::span<const std::string> sets,
                       std::span<const std::string> grids, std::vector<Problem>& problems);

v1::JobFile read_job(const Document& document, std::vector<Problem>& problems);
/// Reads a document that only describes a dataset, or a job, of which only the dataset is used.
v1::DatasetFile read_dataset(const Document& document, std::vector<Problem>& problems);
/// Reads the fields below a job's `model`.
v1::ModelSpec read_model(const Document& document, std::vector<Problem>& problems);
/// Reads the fields below a job's `array`.
v1::ArraySpec read_array(const Document& document, std::vector<Problem>& problems);

/// Returns the part of a job file that SubmitJob takes. dataset.name is set only if the file names
/// a dataset and no path.
v1::JobSpec job_spec(const v1::JobFile& file);

/// Returns whether the job starts from the weights of a file. False if the recipe also names
/// another source, which the server refuses.
bool has_weights_file(const v1::Recipe& recipe);

}  // namespace trainyard::spec
