# cmake -D "INPUT=page.html" -D OUTPUT=page.cpp -D SYMBOL=kPage -P embed_text.cmake: writes a source file that defines
# `sluice::kPage`, a std::string_view of the text, of several files one after the other. Raw strings are cut into pieces,
# since compilers limit a single one.
set(text "")
foreach(file IN LISTS INPUT)
  file(READ ${file} part)
  string(APPEND text "${part}")
endforeach()
set(delimiter "embedded")
string(FIND "${text}" ")${delimiter}\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "${INPUT} contains the delimiter of the raw string it is to become")
endif()

set(pieces "")
string(LENGTH "${text}" left)
set(at 0)
while(left GREATER 0)
  string(SUBSTRING "${text}" ${at} 12000 piece)
  string(APPEND pieces "\nR\"${delimiter}(${piece})${delimiter}\"")
  math(EXPR at "${at} + 12000")
  math(EXPR left "${left} - 12000")
endwhile()
file(WRITE ${OUTPUT} "#include <string_view>\n\nnamespace sluice {\nextern const std::string_view ${SYMBOL};\n"
                     "const std::string_view ${SYMBOL} =${pieces};\n}  // namespace sluice\n")
