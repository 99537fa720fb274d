// client/init/job_yaml.h: writes a draft as a job file for the user to edit.
#pragma once

#include <filesystem>
#include <string>

#include "client/init/job_draft.h"

namespace trainyard::init {

struct JobYamlOptions {
  std::filesystem::path data;  // as the user named it
  // the file that will contain the text; paths in the text are relative to its folder
  std::filesystem::path file;
  std::string name;     // of the job
  std::string dataset;  // the dataset's name
};

std::string job_yaml(const JobDraft& draft, const JobYamlOptions& options);

}  // namespace trainyard::init
