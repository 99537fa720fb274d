// client/init/job_yaml.h: a draft as the job file that a person goes on with.
#pragma once

#include <filesystem>
#include <string>

#include "client/init/job_draft.h"

namespace trainyard::init {

struct JobYamlOptions {
  std::filesystem::path data;  // as the user named it
  std::filesystem::path file;  // that will hold the text: paths in it are relative to its folder
  std::string name;            // of the job; empty: chosen by the server
};

std::string job_yaml(const JobDraft& draft, const JobYamlOptions& options);

}  // namespace trainyard::init
