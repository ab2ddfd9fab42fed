// The sidebar shows where the reader is.
addEventListener('DOMContentLoaded', () => {
  const here = document.querySelector('.sidebar-tree .current-page > a'), frame = document.querySelector('.sidebar-scroll');
  if (!here || !frame) return;
  const offset = here.getBoundingClientRect().top - frame.getBoundingClientRect().top;
  frame.scrollTo({top: offset - frame.clientHeight / 3, behavior: 'instant'});
});

// What a link leads to is open, in browsers that do not see to it themselves.
async function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target || !target.closest('details:not([open])')) return;
  for (let fold = target; (fold = fold.parentElement.closest('details'));) fold.open = true;
  target.scrollIntoView({behavior: 'instant'});
  // Pictures above it that load later would move it
  await Promise.all([...document.images].map(image => { image.loading = 'eager'; return image.decode().catch(() => 0); }));
  target.scrollIntoView({behavior: 'instant'});
}
addEventListener('DOMContentLoaded', openTarget);
addEventListener('hashchange', openTarget);
