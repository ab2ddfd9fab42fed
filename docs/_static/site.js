// The sidebar shows where the reader is.
addEventListener('DOMContentLoaded', () => {
  const here = document.querySelector('.sidebar-tree .current-page > a'), frame = document.querySelector('.sidebar-scroll');
  if (!here || !frame) return;
  const offset = here.getBoundingClientRect().top - frame.getBoundingClientRect().top;
  frame.scrollTo({top: offset - frame.clientHeight / 3, behavior: 'instant'});
});
