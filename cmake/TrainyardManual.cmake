# Manual pages and completion scripts. The programs print them, and they are installed where man and the shells find them.
if(NOT TARGET trainyard)
  return()
endif()
find_program(GZIP gzip REQUIRED)  # Debian requires compressed pages; man reads both forms
set(share ${PROJECT_BINARY_DIR}/share)
add_custom_command(OUTPUT ${share}/man/man1/trainyard.1.gz
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${share}/man/man1  # removes pages of commands that no longer exist
  COMMAND trainyard man --out ${share}/man/man1
  COMMAND sh -c "${GZIP} -9n ${share}/man/man1/*"
  DEPENDS trainyard VERBATIM)
add_custom_command(OUTPUT ${share}/man/man8/trainyardd.8.gz
  COMMAND ${CMAKE_COMMAND} -E make_directory ${share}/man/man8
  COMMAND trainyardd --print-manual > ${share}/man/man8/trainyardd.8
  COMMAND ${GZIP} -9nf ${share}/man/man8/trainyardd.8
  DEPENDS trainyardd VERBATIM)
set(scripts)
foreach(script IN ITEMS bash=bash-completion/completions/trainyard zsh=zsh/vendor-completions/_trainyard
                        fish=fish/vendor_completions.d/trainyard.fish)
  string(REGEX MATCH "^[^=]*" shell ${script})
  string(REGEX REPLACE "^[^=]*=" "${share}/" file ${script})
  cmake_path(GET file PARENT_PATH folder)
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND trainyard completion ${shell} > ${file}
    DEPENDS trainyard VERBATIM)
  list(APPEND scripts ${file})
endforeach()
add_custom_target(trainyard_manual ALL
  DEPENDS ${share}/man/man1/trainyard.1.gz ${share}/man/man8/trainyardd.8.gz ${scripts})

install(DIRECTORY ${share}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT programs)
foreach(folder IN ITEMS bash-completion zsh fish)
  install(DIRECTORY ${share}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT programs)
endforeach()
